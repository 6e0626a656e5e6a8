"""What passes through a stage, counted as it does, and told of where it is worth that."""

from __future__ import annotations

from weakref import WeakSet

from rxjobs.events import StageWorked
from rxjobs.hold import Waiting
from rxjobs.job import Job
from rxjobs.outcome import Discard, Finished, Retry

SLOW = 5_000_000
"""Work on one job that takes longer is told of, ns."""
SAMPLE = 15
"""One job in sixteen is told of however long it takes, so that durations can be known."""
OUT, DROPPED, ERROR = "out", "dropped", "error"


class Counted:
    """The numbers of one stage, in whichever pipelines it is: plain integers, read by who wants to know."""

    def __init__(self, name: str, *, traced: bool = False, runs_jobs: bool = False, room: int = 0) -> None:
        self.name = name
        self.traced = traced
        """Whether all that it works on is told of."""
        self.runs_jobs = runs_jobs
        self.room = room
        """How many may wait in it; 0 is as many as its sources hold."""
        self.went_in = 0
        self.dropped = 0
        self.errors = 0
        self.working: WeakSet[Waiting] = WeakSet()
        """What works on several jobs at once."""

    @property
    def went_out(self) -> int:
        """How many it has passed on."""
        return max(0, self.went_in - self.dropped - self.errors - self.running)

    @property
    def running(self) -> int:
        """How many it works on."""
        return sum(_jobs_in(item) for one in tuple(self.working) for item in one.running)

    @property
    def limit(self) -> int:
        """How many it works on at once at most: jobs, or lists of them; 0 where it does not work on several."""
        return sum(one.limit for one in tuple(self.working))

    @property
    def waiting(self) -> int:
        """How many wait in it for their turn."""
        return sum(one.waiting for one in tuple(self.working))

    def worked(self, job: Job, item: Job | Finished, took: int) -> None:
        """It has worked on a job for so many ns, and makes this of it."""
        disposition, reason = OUT, ""
        if isinstance(item, Finished):
            outcome = item.outcome
            if isinstance(outcome, Retry | Discard) and outcome.failure is not None:
                disposition, reason = ERROR, outcome.failure.type
                self.errors += 1
            else:
                disposition, reason = DROPPED, type(outcome).__name__
                self.dropped += 1
        is_sample = not self.went_in & SAMPLE
        if (is_sample or self.traced or took > SLOW) and job.hold is not None:
            job.hold.ledger.emit(
                StageWorked(
                    job=job.told, stage=self.name, duration=took, disposition=disposition, reason=reason,
                    is_sample=is_sample, is_traced=self.traced,
                )
            )  # fmt: skip


def _jobs_in(item: object) -> int:
    return len(item) if isinstance(item, list) else 1
