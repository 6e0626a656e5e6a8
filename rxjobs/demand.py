"""Demand: how many more jobs a pipeline will take, and how what it holds is given back.

Nothing in Rx holds a fast producer back, so demand does: a job takes a place when it is fetched and gives it back when
its outcome is written down. The ledger of its pull counts the places.
"""

from __future__ import annotations

import time

from rxjobs.errors import InvalidOption
from rxjobs.hold import Acked
from rxjobs.job import Job
from rxjobs.outcome import Finished, Outcome, Release


class Demand:
    """How many jobs may be held, and how few must be before more are asked for."""

    def __init__(self, max_demand: int, min_demand: int | None = None) -> None:
        if isinstance(max_demand, bool) or not isinstance(max_demand, int) or max_demand < 1:
            raise InvalidOption(f"max_demand is a whole number of at least 1, not {max_demand!r}")
        least = max_demand // 2 if min_demand is None else min_demand
        if isinstance(least, bool) or not isinstance(least, int) or not 0 <= least < max_demand:
            raise InvalidOption(f"min_demand is a whole number from 0 to max_demand - 1 = {max_demand - 1}, not {min_demand!r}")
        self.max_demand = max_demand
        self.min_demand = least
        self.held = 0
        self.promised = 0
        """Places that are for jobs on their way, which come with the ack of others."""
        self.declared = max_demand
        """As many as are held at most where nothing else is asked for."""
        self._least = min_demand
        self._followed = max_demand
        self._asked: int | None = None

    def resize(self, max_demand: int | None) -> None:
        """Hold so many at most from now on, or as many as was declared (None). What is held beyond that stays until it is acked."""
        self._asked = max_demand
        self._size()

    def follow(self, max_demand: int) -> None:
        """As many as are to be held at most, as long as `resize` asks for nothing else: what autoscale moves."""
        self._followed = max_demand
        self._size()

    @property
    def is_resized(self) -> bool:
        """Whether `resize` asks for so many, whatever is declared or followed."""
        return self._asked is not None

    def _size(self) -> None:
        self.max_demand = self._followed if self._asked is None else self._asked
        self.min_demand = self.max_demand // 2 if self._least is None else min(self._least, self.max_demand - 1)

    @property
    def free(self) -> int:
        """How many jobs to ask for now: none while more than min_demand are held."""
        return self.max_demand - self.held - self.promised if self.held + self.promised <= self.min_demand else 0

    @property
    def worth_asking(self) -> int:
        """As many places as are worth a fetch of their own while others are held: what it takes to fall to min_demand, or half."""
        return max(self.max_demand - self.min_demand, (self.max_demand + 1) // 2)


def settle(finished: Finished, then: Acked | None = None) -> bool:
    """Write down how a job ended, once: False where that was done before, or the job takes no place in any demand."""
    hold = finished.job.hold
    if hold is None or hold.settled:
        return False
    hold.settled = True
    hold.ledger.settle(finished, then)
    return True


def ended(job: Job, outcome: Outcome) -> Finished:
    """A job with how it ended. Its place remembers that: an operator that drops it from here on does not undo it."""
    if job.hold is not None:
        job.hold.outcome = outcome
    return Finished(job, outcome)


def let_go(item: Job | Finished, reason: str = "its pipeline was stopped") -> None:
    """Settle what has nowhere to go: an outcome is written down, a job without one is released."""
    settle(item if isinstance(item, Finished) else Finished(item, Release(reason=reason)))


now = time.monotonic_ns
"""This process's own clock, ns."""
