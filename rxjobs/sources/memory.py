"""Jobs in memory: for tests, and for streams that need no database."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from reactivex import Observable
from reactivex.subject import Subject

from rxjobs.awaiting import scheduler_here
from rxjobs.job import Job, State
from rxjobs.outcome import Cancel, Complete, Discard, Finished, Release, Retry, Snooze


class MemorySource:
    """A source of jobs in memory.

    `asked` and `settled` keep what it saw: how many jobs each fetch asked for, and every outcome in order. A job that is
    retried, snoozed or released comes back after its delay. Once closed it ends when the last of its jobs has.
    """

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        self.asked: list[int] = []
        self.settled: list[Finished] = []
        self._ready: list[Job] = list(jobs)
        self._open = {job.id: job for job in self._ready}
        self._closed = False
        self._wakes: Subject[object] = Subject()

    @property
    def wakes(self) -> Observable[object]:
        return self._wakes

    def push(self, *jobs: Job) -> None:
        """Add jobs, and wake whoever waits for them."""
        self._ready += jobs
        self._open |= {job.id: job for job in jobs}
        self._wakes.on_next("push")

    def close(self) -> None:
        """No more jobs will be pushed."""
        self._closed = True
        self._end_if_last()

    async def fetch(self, n: int) -> list[Job]:
        self.asked.append(n)
        taken, self._ready = self._ready[:n], self._ready[n:]
        return [msgspec.structs.replace(job, state=State.EXECUTING, attempt=job.attempt + 1) for job in taken]

    async def settle(self, finished: list[Finished]) -> None:
        self.settled += finished
        for one in finished:
            self._settle(one.job, one)
        self._end_if_last()

    def _settle(self, job: Job, finished: Finished) -> None:
        match finished.outcome:
            case Complete() | Cancel() | Discard():
                self._open.pop(job.id, None)
            case Retry(delay=delay):
                self._come_back(job, State.RETRYABLE, job.attempt, delay or 0.0)
            case Snooze(seconds=delay):
                self._come_back(job, State.SCHEDULED, job.attempt - 1, delay)
            case Release(delay=delay):
                self._come_back(job, State.AVAILABLE, job.attempt - 1, delay)

    def _come_back(self, job: Job, state: State, attempt: int, delay: float) -> None:
        # the job as it was pushed: what stages made of it would not be in its row either
        back = msgspec.structs.replace(self._open.get(job.id, job), hold=None, state=state, attempt=attempt)
        scheduler_here().later(delay, lambda: self.push(back))

    def _end_if_last(self) -> None:
        if self._closed and not self._open:
            self._wakes.on_completed()
