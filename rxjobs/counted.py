"""What passes through a stage, counted as it does, and told of where it is worth that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

from rxjobs.checks import checked_name
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
        self.name = checked_name("a stage", name)
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
        return sum(_jobs(one.running) for one in tuple(self.working))

    @property
    def limit(self) -> int:
        """How many it works on at once at most: jobs, or lists of them; 0 where it does not work on several."""
        return sum(one.limit for one in tuple(self.working))

    @property
    def waiting(self) -> int:
        """How many jobs wait in it for their turn."""
        return sum(_jobs(one.waiting) for one in tuple(self.working))

    def worked(self, job: Job, item: Job | Finished, took: int) -> None:
        """It has worked on a job for so many ns, and makes this of it."""
        is_sample = not self.went_in & SAMPLE
        disposition, reason = self._settled(item)
        if is_sample or self.traced or took > SLOW:
            self._tell(job, took, disposition, reason, is_sample=is_sample)

    def worked_together(self, jobs: Sequence[Job], took: int) -> None:
        """It has worked on jobs together for so many ns, which is told of each time: there are fewer of such than of jobs."""
        self._tell(jobs[0], took, OUT, "", is_sample=True, others=jobs[1:])

    def _settled(self, item: Job | Finished) -> tuple[str, str]:
        """What became of a job, and why it went no further."""
        if not isinstance(item, Finished):
            return OUT, ""
        outcome = item.outcome
        if isinstance(outcome, Retry | Discard) and outcome.failure is not None:
            self.errors += 1
            return ERROR, outcome.failure.type
        self.dropped += 1
        return DROPPED, type(outcome).__name__

    def _tell(self, job: Job, took: int, disposition: str, reason: str, *, is_sample: bool, others: Sequence[Job] = ()) -> None:
        if job.hold is not None:
            job.hold.ledger.emit(
                StageWorked(
                    job=job.told, stage=self.name, duration=took, disposition=disposition, reason=reason,
                    is_sample=is_sample, is_traced=self.traced, others=[other.told for other in others],
                )
            )  # fmt: skip


class Passing(Counted):
    """The numbers of a stage in which jobs wait, and nothing runs: its work on a job is how long it keeps it."""

    def __init__(self, name: str, *, traced: bool = False, room: int = 0) -> None:
        super().__init__(name, traced=traced, room=room)
        self.passed = 0
        self._left = 0

    @property
    def went_out(self) -> int:
        """How many it has passed on."""
        return self.passed

    def let_pass(self, job: Job, seconds: float) -> None:
        """A job goes on that waited for so many seconds."""
        self.passed += 1
        self._leaves(job, job, seconds)

    def let_pass_together(self, jobs: Sequence[Job], seconds: Sequence[float]) -> None:
        """Jobs go on together: told of is how long the first has waited, which is how long it took to gather them."""
        self.passed += len(jobs)
        self._tell(jobs[0], int(seconds[0] * 1e9), OUT, "", is_sample=True)
        for job, waited in zip(jobs[1:], seconds[1:], strict=True):
            if self.traced or waited * 1e9 > SLOW:
                self._tell(job, int(waited * 1e9), OUT, "", is_sample=False)

    def settle(self, finished: Finished, seconds: float = 0.0) -> Finished:
        """A job has ended here, after so many seconds; gives it back."""
        self._leaves(finished.job, finished, seconds)
        return finished

    def let_go(self, jobs: Sequence[Job]) -> None:
        """Jobs leave that wait no longer: their pipeline stops, or their queue is paused."""
        self.dropped += len(jobs)

    def _leaves(self, job: Job, item: Job | Finished, seconds: float) -> None:
        self._left += 1
        is_sample, took = not self._left & SAMPLE, int(seconds * 1e9)
        disposition, reason = self._settled(item)
        if is_sample or self.traced or took > SLOW:
            self._tell(job, took, disposition, reason, is_sample=is_sample)


def _jobs(items: Sequence[Any]) -> int:
    """How many jobs there are, of which some may be in lists."""
    return sum(len(item) if isinstance(item, list) else 1 for item in items)
