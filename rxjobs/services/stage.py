"""Make jobs available whose time has come."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.services.lead import Leadership
from rxjobs.store.patience import patiently
from rxjobs.store.store import LONG_AGO, Staged, Store

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


def stage(store: Store, leadership: Leadership, poll_seconds: float) -> Observable[int]:
    """How many jobs the leader made available, again and again: when the next is due, and at the latest after `poll_seconds`."""
    wait = poll_seconds
    beginning = Beginning()

    async def once() -> int:
        nonlocal wait
        wait, term = poll_seconds, leadership.term
        if term is None:
            return 0
        since = beginning.of_a_look(term)
        staged = await patiently("staging jobs", lambda: store.stage_jobs(BATCH, leadership.node, term, since))
        beginning.looked(since, staged)
        wait = SOONEST if staged.jobs == BATCH else _soon(poll_seconds, staged.next)
        return staged.jobs

    return every(lambda: wait, once)


def _soon(poll_seconds: float, due: float | None) -> float:
    return max(SOONEST, poll_seconds if due is None else min(poll_seconds, due))


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
