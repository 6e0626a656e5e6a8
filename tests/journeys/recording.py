"""A source that notes what a pipeline does with the one within."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rxjobs as rj


class Recording:
    """A source that notes what the source within was asked for, gave and was told."""

    def __init__(self, source: rj.Source) -> None:
        self._source = source
        self.held: set[int] = set()
        self.most_held = 0
        self.asked: list[tuple[int, int]] = []
        """How many jobs were asked for, and how many were held then."""
        self.settled: list[int] = []
        self.outcomes: dict[int, str] = {}
        self.fetching = self.most_fetching = 0

    @property
    def wakes(self) -> Any:
        return self._source.wakes

    async def fetch(self, n: int) -> list[rj.Job]:
        self.asked.append((n, len(self.held)))
        self.fetching += 1
        self.most_fetching = max(self.most_fetching, self.fetching)
        jobs = await self._source.fetch(n)
        self.fetching -= 1
        ids = {job.id for job in jobs}
        assert len(ids) == len(jobs) <= n
        assert self.held.isdisjoint(ids)
        self.held |= ids
        self.most_held = max(self.most_held, len(self.held))
        return jobs

    async def settle(self, finished: Sequence[rj.Finished]) -> None:
        await self._source.settle(list(finished))
        for one in finished:
            self.held.remove(one.job.id)
            self.settled.append(one.job.id)
            self.outcomes[one.job.id] = type(one.outcome).__name__
