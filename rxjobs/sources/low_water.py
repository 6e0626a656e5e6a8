"""From where on the jobs of a queue may be ready, so that a claim need not step over all that was claimed before.

The entries of claimed jobs stay at the beginning of the index of ready jobs until vacuum may remove them. While an old
transaction forbids that, claims from the start take ever longer: a thousand entries cost about 0.13 ms. So do the ready jobs
of a type that is not asked for, such as one whose breaker is open: a thousand cost 0.4 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rxjobs.demand import now
from rxjobs.store.encoding import instant
from rxjobs.store.store import FROM_THE_START, PRIORITIES, Marks

CROWDED_SECONDS = 0.002
"""What it may take to step over what is not claimed, before claims begin behind it."""
SETTLED = timedelta(seconds=0.2)
"""What was inserted or staged before that is taken for committed; a longer transaction's jobs are found by looking behind."""
LOOK_SECONDS = 1.0
LONG_AGO = 2
"""After so many times the seconds from one look to the next a claim is followed by one at once: who knows what has come."""
SHARE = 4
"""Looking behind takes a fifth of one connection's time at most: it is what claims are spared."""


class LowWater:
    """The low-water marks of one source. All instants are PostgreSQL's.

    Claims begin at the marks only where it is crowded behind them, and go back to the start when a look finds that they
    passed a job by: one that was released, or whose transaction took long.
    """

    def __init__(self) -> None:
        self.types: Sequence[str] = ()
        self.marks = FROM_THE_START
        """Before these there was nothing ready."""
        self.wait = LOOK_SECONDS
        """Seconds from one look to the next."""
        self._is_crowded = False
        self._looked_at = FROM_THE_START
        self._unsure_from = 0
        """From when on nobody knows how crowded it is: by this process's own clock, ns."""

    @property
    def needs_a_look(self) -> bool:
        """Whether to look behind the marks for a job that was passed by, and how long that takes now."""
        return self.marks is not FROM_THE_START and (self._is_crowded or self.marks is not self._looked_at)

    @property
    def beginning(self) -> Marks:
        """Where a claim begins."""
        return self.marks if self._is_crowded else FROM_THE_START

    def begin(self, types: Sequence[str]) -> Marks:
        """Where a claim of these job types begins."""
        if types != self.types:
            self.types, self.marks, self._unsure_from = types, FROM_THE_START, 0
        return self.beginning

    def claimed(self, began: Marks, rows: Sequence[Any], asked: int) -> bool:
        """A claim that began there gave these rows, the most urgent first; gives whether to look behind at once."""
        if rows and began is self.beginning:  # else a look behind has moved the beginning meanwhile
            self.marks = _risen(self.marks, rows[-1], is_all=len(rows) < asked)
        if self._is_crowded or not self.needs_a_look or now() < self._unsure_from:
            return False
        self._know()
        return True

    def looked(self, behind: Marks, is_ready: bool, seconds: float) -> bool:
        """A look behind took so long; gives whether a job is ready that claims passed by."""
        was_crowded, self._is_crowded = self._is_crowded, seconds > CROWDED_SECONDS
        self._looked_at = behind
        self.wait = max(LOOK_SECONDS, SHARE * seconds)
        self._know()
        if is_ready:
            self.marks = FROM_THE_START
        return is_ready and was_crowded

    def _know(self) -> None:
        self._unsure_from = now() + int(LONG_AGO * self.wait * 1e9)


def _risen(marks: Marks, last: Any, *, is_all: bool) -> Marks:
    """The marks after a claim whose least urgent row this is: more urgent ones are exhausted, and all are if it got them all."""
    settled = instant(last["attempted_at"]) - SETTLED, 0
    if is_all:
        return (settled[0],) * PRIORITIES, (0,) * PRIORITIES
    instants, ids = marks
    priority = last["priority"]
    mark, id_ = min(settled, (instant(last["scheduled_at"]), last["id"]))
    return (
        (settled[0],) * priority + (mark,) + instants[priority + 1 :],
        (0,) * priority + (id_,) + ids[priority + 1 :],
    )
