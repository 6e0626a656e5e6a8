"""Look now and then how deep the queues are, and what they are limited to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.events import Emit
from rxjobs.services.maintenance import Done, maintained
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

EVERY_SECONDS, STANDBY_SECONDS = 10.0, 2.0


class Watcher(Protocol):
    """Who wants to know, while he does, how many jobs stand in each queue and state, and for how many seconds the oldest waits;
    and how many of a queue run at once at most, and start in a second, where it is limited.

    None is what a node tells that is to tell of them no more: another one leads.
    """

    @property
    def is_watching(self) -> bool: ...

    def observe(
        self,
        depths: Mapping[tuple[str, str], tuple[int, float | None]] | None,
        limits: Mapping[str, tuple[int | None, float | None]] = ...,
    ) -> None: ...


def observe(
    store: Store,
    watcher: Watcher,
    is_leading: Callable[[], bool],
    emit: Emit | None = None,
    every_seconds: float = EVERY_SECONDS,
    standby_seconds: float = STANDBY_SECONDS,
) -> Observable[int]:
    """How many queues and states the leader looked at, again and again; none while nobody watches, since to count costs."""
    wait = standby_seconds

    async def once() -> int:
        nonlocal wait
        wait = standby_seconds
        if not watcher.is_watching:
            return 0
        if not is_leading():
            watcher.observe(None)
            return 0
        wait = every_seconds
        return await maintained(emit, "observe", look)

    async def look() -> Done:
        rows = await patiently("counting the jobs in the queues", store.queue_depths)
        limits = await patiently("reading the limits of queues", store.read_limits)
        watcher.observe(
            {(row["queue"], row["state"]): (row["jobs"], row["oldest"]) for row in rows},
            {queue: (of.concurrency, None if of.rate is None else of.rate.n / of.rate.per) for queue, of in limits.items()},
        )
        return Done(len(rows))

    return every(lambda: wait, once)
