"""Jobs in memory: for tests, and for streams that need no database."""

from __future__ import annotations

from collections.abc import Iterable

from reactivex import Observable
from reactivex.subject import Subject

from rxjobs.job import Job
from rxjobs.outcome import Finished
from rxjobs.sources.kept import claimed, give_again


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
        self._given = 0
        self._closed = False
        self._wakes: Subject[object] = Subject()

    @property
    def wakes(self) -> Observable[object]:
        return self._wakes

    @property
    def is_exhausted(self) -> bool:
        """Whether it is closed, and every job that is not done was given."""
        return self._closed and len(self._open) == self._given

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
        self._given += len(taken)
        return [claimed(job) for job in taken]

    async def settle(self, finished: list[Finished]) -> None:
        self.settled += finished
        self._given -= len(finished)
        for one in finished:
            if not give_again(one, self._open, self.push):
                self._open.pop(one.job.id, None)
        self._end_if_last()

    def _end_if_last(self) -> None:
        if self._closed and not self._open:
            self._wakes.on_completed()
