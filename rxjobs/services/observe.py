"""Look now and then how deep the queues are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

EVERY_SECONDS = 10.0


class Watcher(Protocol):
    """Who wants to know how many unfinished jobs stand in each queue and state, while he does."""

    @property
    def is_watching(self) -> bool: ...

    def observe(self, depths: Mapping[tuple[str, str], int]) -> None: ...


def observe(store: Store, watcher: Watcher, every_seconds: float = EVERY_SECONDS) -> Observable[int]:
    """How many queues and states were looked at, again and again; none while nobody watches, since to count costs."""

    async def once() -> int:
        if not watcher.is_watching:
            return 0
        rows = await patiently("counting the jobs in the queues", store.queue_depths)
        watcher.observe({(row["queue"], row["state"]): row["jobs"] for row in rows})
        return len(rows)

    return every(lambda: every_seconds, once)
