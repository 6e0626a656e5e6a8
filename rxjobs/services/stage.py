"""Make jobs available whose time has come."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

import reactivex as rx
from reactivex import Observable
from reactivex import operators as ops
from reactivex.subject import Subject

from rxjobs.awaiting import conflate_map
from rxjobs.events import Emit
from rxjobs.services.lead import Leadership
from rxjobs.services.maintenance import Done, maintained
from rxjobs.sources.looks import Seen, Since
from rxjobs.store.patience import patiently
from rxjobs.store.store import LONG_AGO, Staged, Store
from rxjobs.store.twins import give_way

BATCH = 1000
SOONEST = 0.01
CROWDED_SECONDS, SECONDS_A_JOB = 0.005, 0.00002
"""What it may take to find what is due, and for each job that is found, before looks begin where the last one ended."""
LOOK_SECONDS = 1.0
SHARE = 4
"""Looking from the start takes a fifth of one connection's time at most."""
SETTLED = timedelta(seconds=0.2)
"""What was inserted before that is taken for committed; a longer transaction's jobs are found by the next look from the start."""

Clock = Callable[[], float]


def stage(
    store: Store,
    leadership: Leadership,
    looks: Callable[[Since], Observable[Seen | None]],
    poll_seconds: float,
    emit: Emit | None = None,
) -> Observable[int]:
    """How many jobs the leader made available, whenever a look or what was staged last says that one is due, and when it is."""

    def begin(_: object) -> Observable[int]:
        beginning, staged = Beginning(), Subject[float | None]()

        def since() -> datetime | None:
            term = leadership.term
            return None if term is None else beginning.of_a_look(term)

        def until_due(seen: Seen | None) -> float | None:
            if seen is None:  # nothing is known
                return 0.0
            look = seen.look
            if seen.since is not None and (look.next is None or look.next > 0):
                beginning.looked(seen.since, Staged(0, look.next, look.at, look.seconds))
            return look.next

        async def work(_: object) -> list[int]:
            term = leadership.term
            if term is None:
                return [0]
            since = beginning.of_a_look(term)

            async def promote() -> Done:
                found = await patiently(
                    "staging jobs", lambda: give_way(store, lambda: store.stage_jobs(BATCH, leadership.node, term, since))
                )
                beginning.looked(since, found)
                staged.on_next(SOONEST if found.jobs == BATCH else found.next)
                return Done(found.jobs, {"scheduled": found.jobs - found.retried, "retryable": found.retried})

            return [await maintained(emit, "promote", promote)]

        def wait(seconds: float | None) -> Observable[object]:
            return rx.timer(max(SOONEST, seconds or 0.0))

        def is_soon(seconds: float | None) -> bool:
            return seconds is not None and seconds <= poll_seconds

        next_: Observable[float | None] = rx.merge(looks(since).pipe(ops.map(until_due)), staged)
        return next_.pipe(ops.filter(is_soon), ops.map(wait), ops.switch_latest(), conflate_map(work))

    return rx.defer(begin)


class Beginning:
    """From which instant on jobs are looked for.

    The entries of staged jobs stay at the beginning of the index until vacuum may remove them. While an old transaction forbids
    that, looks from the start take ever longer: then most begin where the last one ended.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._term: int | None = None
        self._since = LONG_AGO
        self._from_the_start_at = 0.0

    def of_a_look(self, term: int) -> datetime:
        """Where a look begins; in a new term at the start, since others may have staged meanwhile, or nobody."""
        if term != self._term:
            self._term, self._since = term, LONG_AGO
        return LONG_AGO if self._clock() >= self._from_the_start_at else self._since

    def looked(self, since: datetime, staged: Staged) -> None:
        """What a look that began there has found."""
        self._since = max(self._since, staged.until - SETTLED)
        if since == LONG_AGO:
            is_crowded = staged.seconds > CROWDED_SECONDS + staged.jobs * SECONDS_A_JOB
            self._from_the_start_at = self._clock() + max(LOOK_SECONDS, SHARE * staged.seconds) if is_crowded else 0.0
