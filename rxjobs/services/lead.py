"""One node leads: it does for all of them what must not be done by each."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.events import Emit, LeaderLost, LeaderWon
from rxjobs.log_lines import logger
from rxjobs.services.maintenance import Done, maintained
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

log = logger("rxjobs.lead")

MARGIN = 0.2
"""The part of its time, at the end, in which a leader no longer acts: its clock and the server's need not run alike."""
SHARE = 0.47
"""The part of its time after which it asks anew: should that fail for as long again, nobody else has had its place yet."""

Clock = Callable[[], float]


class Leadership:
    """Whether this node leads, as far as it can know: until its time is over by its own monotonic clock."""

    def __init__(self, node: UUID, seconds: float, emit: Emit, clock: Clock = time.monotonic) -> None:
        self.node = node
        self._seconds = seconds
        self.emit = emit
        self._clock = clock
        self._term: int | None = None
        self._until = 0.0

    @property
    def term(self) -> int | None:
        """The term in which this node leads now, None when it does not."""
        return self._term if self._clock() < self._until else None

    def asked(self, term: int | None, at: float) -> None:
        """The server was asked at `at` whether this node leads, and answered with a term or none."""
        before, self._term = self._term, term
        self._until = at + self._seconds * (1 - MARGIN) if term is not None else 0.0
        if term is not None and term != before:
            log.info("this node leads, in term %d", term)
            self.emit(LeaderWon(node=str(self.node), term=term))
        elif term is None and before is not None:
            log.warning("this node no longer leads")
            self.emit(LeaderLost(node=str(self.node), term=before))


def lead(store: Store, leadership: Leadership, seconds: float, clock: Clock = time.monotonic) -> Observable[int | None]:
    """The term in which this node leads, or None, asked again twice in the time that a leader has, before its end."""

    async def ask() -> tuple[int | None, float]:
        at = clock()  # before the question: the server counts from its answer
        return await store.lead(leadership.node, seconds), at

    async def once() -> int | None:
        async def elect() -> Done:
            before = leadership.term
            leadership.asked(*await patiently("asking who leads", ask))
            return Done(int(leadership.term != before))

        await maintained(leadership.emit, "elect", elect)
        return leadership.term

    return every(lambda: SHARE * seconds, once)
