"""What the tests of dispatchers have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import rxjobs as rj
from rxjobs.testing import job_type


def taking(seconds: float, concurrency: int = 1, outcome: rj.Outcome | None = None) -> rj.Branch:
    """A branch whose jobs take so long, and end so."""

    async def sleep(job: rj.Job) -> Any:
        await asyncio.sleep(seconds)
        return outcome

    return rj.branch(rj.enrich(sleep, concurrency=concurrency), rj.complete())


def a_type_of(runs: Runs, **options: Any) -> Any:
    """A job type whose jobs are run by that."""

    async def work(n: int = 0, key: Any = None) -> Any:
        return await runs(rj.current_job())

    return job_type(work, **options)


class Runs:
    """A function of a job that notes which jobs it works on, and when; `seconds` says how long it takes, `end` how it ends."""

    def __init__(
        self,
        seconds: Callable[[rj.Job], float] = lambda job: 0.0,
        end: Callable[[rj.Job], Any] = lambda job: None,
        key: Callable[[rj.Job], Any] = lambda job: job.args.get("key"),
    ) -> None:
        self.began: list[tuple[Any, int]] = []
        """Key and number, in the order in which they began."""
        self.now: list[Any] = []
        self.most = 0
        self.overlaps: list[Any] = []
        self._seconds = seconds
        self._end = end
        self._key = key

    async def __call__(self, job: rj.Job) -> Any:
        key = self._key(job)
        if key in self.now:
            self.overlaps.append(key)
        self.began.append((key, job.args.get("n", 0)))
        self.now.append(key)
        self.most = max(self.most, len(self.now))
        try:
            await asyncio.sleep(self._seconds(job))
        finally:
            self.now.remove(key)
        return self._end(job)

    def of(self, key: Any) -> list[int]:
        """The numbers of a key's jobs, in the order in which they began."""
        return [n for one, n in self.began if one == key]
