"""A source that is watched while a pipeline pulls from it, so that the laws can be read off what it saw."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from reactivex import Observable

from rxjobs.awaiting import LoopScheduler
from rxjobs.declared import Pipeline
from rxjobs.demand import Demand
from rxjobs.event_stream import EventStream
from rxjobs.events import Event, PipelineRestarted, PipelineStopped
from rxjobs.job import Job
from rxjobs.outcome import Finished
from rxjobs.runner import Running
from rxjobs.source import Source

Claim = tuple[int, int]
"""A job's id and attempt: what is fetched, and settled once."""


class Watched:
    """Any source, and what it was asked, gave and was told. Broken laws of demand are gathered as they are seen."""

    def __init__(self, source: Source, max_demand: int, min_demand: int | None = None) -> None:
        self.source = source
        self.demand = Demand(max_demand, min_demand)
        self.fetched: list[Claim] = []
        self.settled: list[Finished] = []
        self.broken: list[str] = []
        self.most_held = 0
        self._held = 0
        self._fetching = False

    @property
    def wakes(self) -> Observable[object]:
        return self.source.wakes

    @property
    def is_exhausted(self) -> bool:
        return bool(getattr(self.source, "is_exhausted", False))

    async def fetch(self, n: int) -> list[Job]:
        if self._fetching:
            self.broken.append("it was asked while it was being asked")
        if self._held > self.demand.min_demand:
            self.broken.append(f"it was asked while {self._held} jobs were held, above min_demand {self.demand.min_demand}")
        if not 0 < n <= self.demand.max_demand - self._held:
            self.broken.append(f"it was asked for {n} jobs where {self.demand.max_demand - self._held} were free")
        self._fetching = True
        try:
            jobs = await self.source.fetch(n)
        finally:
            self._fetching = False
        self._held += len(jobs)
        self.most_held = max(self.most_held, self._held)
        self.fetched += [(job.id, job.attempt) for job in jobs]
        return jobs

    async def settle(self, finished: list[Finished]) -> None:
        await self.source.settle(finished)
        self.settled += finished
        self._held -= len(finished)

    def hold_to_the_laws(self) -> None:
        """Raise AssertionError unless demand was kept, and every job fetched was settled exactly once."""
        assert not self.broken, f"demand was not kept: {self.broken[:5]}"
        assert self.most_held <= self.demand.max_demand, f"{self.most_held} jobs were held, max_demand is {self.demand.max_demand}"
        fetched = Counter(self.fetched)
        settled = Counter((one.job.id, one.job.attempt) for one in self.settled)
        lost, doubled = fetched - settled, settled - fetched
        assert not lost, f"{lost.total()} of {fetched.total()} jobs that were fetched were never settled: {_first(lost)}"
        assert not doubled, f"jobs were settled more than once, or without having been fetched: {_first(doubled)}"


class Observed:
    """A pipeline that runs, and the events it made."""

    def __init__(self, running: Running, events: list[Event]) -> None:
        self.running = running
        self.events = events

    def never_broke(self) -> None:
        """Raise AssertionError if it did."""
        broke = [event for event in self.events if isinstance(event, PipelineRestarted)]
        assert not broke, f"the pipeline broke, where a failure must be a value: {broke[0].error.type}: {broke[0].error.message}"

    def hold_to_the_laws(self) -> None:
        """Raise AssertionError unless it ended without ever having broken."""
        self.never_broke()
        assert any(isinstance(event, PipelineStopped) for event in self.events), "the pipeline was stopped and has not ended"


@asynccontextmanager
async def runs(*pipelines: Observable[Any], max_restarts: int = 5, grace: float = 10.0) -> AsyncIterator[Observed]:
    """Run pipelines as an app does, without one; stopped on leaving."""
    events, seen = EventStream(), list[Event]()
    events.subscribe(seen.append)
    running = Running(
        [Pipeline(f"pipeline-{place}", stream) for place, stream in enumerate(pipelines, 1)],
        LoopScheduler(asyncio.get_running_loop()),
        events,
        max_restarts=max_restarts,
        restart_window=60.0,
    )
    running.start()
    try:
        yield Observed(running, seen)
    finally:
        await running.stop(grace)
        await running.close_executors()


def _first(claims: Counter[Claim]) -> str:
    return ", ".join(f"job {id_} of attempt {attempt}" for id_, attempt in list(claims)[:5])
