"""The place of one job in a demand, which travels with the job: how it ended, or that it was let go, is told by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from time import monotonic
from typing import Any, Protocol

import msgspec

from rxjobs.events import Emit, JobDropped
from rxjobs.job import Job
from rxjobs.log_lines import logger
from rxjobs.outcome import Finished, Outcome, Release
from rxjobs.reporting import Report, Reports

log = logger("rxjobs.demand")

DROPPED_DELAY = 5.0
"""Seconds until a job that a pipeline dropped may run again: long enough that a pipeline which drops them all does not spin."""
CANCELLED = "cancelled by request"
"""Why a job was cancelled that somebody asked to be: `app.jobs.cancel`."""

Acked = Callable[[Finished], object]


class Tenure:
    """Until when a node may begin what it holds, s by this process's own clock: its lease, as far as it knows; else for ever.

    A process that was stopped for longer than that begins nothing when it wakes, even before anybody has told it what it missed.
    """

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until = float("inf")


class Keeper(Protocol):
    """Who gave a place to a job, and is told how it ended, or that it was let go unsettled: a pull's ledger, or a dispatcher."""

    @property
    def era(self) -> int: ...

    @property
    def tenure(self) -> Tenure: ...

    @property
    def is_paused(self) -> bool: ...

    @property
    def cancelling(self) -> frozenset[tuple[int, int]]: ...

    @property
    def emit(self) -> Emit: ...

    @property
    def root(self) -> Root | None: ...

    def settle(self, finished: Finished, then: Acked | None = None) -> None: ...

    def dropped(self, job: Job, outcome: Outcome | None) -> None: ...


class Waiting(Protocol):
    """A stage's work: what it works on, and what waits there for its turn."""

    @property
    def running(self) -> list[Any]: ...

    @property
    def waiting(self) -> Sequence[Any]: ...

    @property
    def limit(self) -> int: ...


class Root(Keeper, Protocol):
    """The ledger of a pull."""

    @property
    def reports(self) -> Reports: ...


class Watcher(Protocol):
    """Who is told of each job as a pull takes it, in this order, and as it has ended."""

    def claimed(self, keeper: Keeper, job: Job) -> None: ...

    def ended(self, keeper: Keeper, finished: Finished) -> None: ...


class Hold(msgspec.Struct, eq=False):
    """The place of one job in its pipeline's demand. To let go of the last copy of an unsettled job gives it back."""

    job: Job
    ledger: Keeper
    fetched: int
    era: int
    settled: bool = False
    outcome: Outcome | None = None
    cancelled: bool = False
    deadline: datetime | None = None

    __repr__ = object.__repr__  # a job shows its place, which need not show the job once more

    @property
    def is_lost(self) -> bool:
        """Whether its node was cut off since it was asked for, or is about to be: others may have it, and it is not to be begun."""
        ledger = self.ledger
        return (self.era != ledger.era or monotonic() > ledger.tenure.until) and self.job.node is not None

    @property
    def recalled(self) -> str | None:
        """Why it is not to be begun any more, if it is not: it is to be released, which is no attempt."""
        ledger = self.ledger
        if ledger.is_paused:
            return "its queue is paused"
        if ledger.cancelling and self.is_to_be_cancelled:
            return CANCELLED
        if self.era == ledger.era and monotonic() <= ledger.tenure.until:  # as for nearly all
            return None
        return "its node was cut off" if self.is_lost else None

    @property
    def is_to_be_cancelled(self) -> bool:
        """Whether somebody has asked for that."""
        return (self.job.id, self.job.attempt) in self.ledger.cancelling

    def report(self, fraction: float, message: str) -> None:
        """Have it written down how far the job has come; may be called from any thread."""
        root = self.root
        if root is not None:
            root.reports.add(Report(self.job, fraction, message))

    @property
    def root(self) -> Root | None:
        """The ledger of the pull that its job came from, also inside of a branch."""
        return self.ledger.root

    def __del__(self) -> None:
        if not self.settled:
            self.ledger.dropped(self.job, self.outcome)


def released_as_dropped(job: Job, emit: Emit) -> Release:
    """How a job ends that an operator dropped, which is made known."""
    reason = "an operator of its pipeline dropped it"
    log.warning(
        "job %s (%s) of queue %s was dropped by an operator of its pipeline and goes back to its queue in %g s; "
        "use rj.filter(..., otherwise=outcome) to settle the jobs that a pipeline does not want",
        job.id, job.type, job.queue, DROPPED_DELAY,
    )  # fmt: skip
    emit(JobDropped(job=job, reason=reason))
    return Release(DROPPED_DELAY, reason)
