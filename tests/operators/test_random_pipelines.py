"""Pipelines that nobody thought of keep the laws too: random trees of stages, branches and foreign operators, which fail, drop,
break, are cancelled and stopped."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from reactivex import compose
from reactivex import operators as ops
from reactivex.scheduler.eventloop import AsyncIOThreadSafeScheduler

import rxjobs as rj
from rxjobs.events import BranchRestarted, JobDropped, PipelineRestarted
from rxjobs.runner import Running
from rxjobs.testing import MemorySource, a_job, job_type, virtually
from rxjobs.testing.watched import Watched, runs

EXAMPLES = int(os.environ.get("RXJOBS_EXAMPLES", "100"))
JOBS = 30
MOST_OPERATORS = 8
ATTEMPTS = 3
HOURS = 3600
"""Virtual seconds: how long it may take until every job has ended."""

Tree = tuple[Any, ...]
Requests = list[tuple[float, int]]
"""When jobs are asked to be cancelled, and which: those whose ids are so divisible."""


LEAVES = ("drop", "execute", "break", "enrich", "filter", "batch", "map", "observe_on", "complete", "ack")
DISPATCHERS = ("balance", "broadcast", "partition")


@st.composite
def lines(draw: st.DrawFn) -> tuple[Tree, ...]:
    """Up to eight operators in a row, some of which have branches of such rows."""
    left = draw(st.integers(1, MOST_OPERATORS))
    few, width = st.integers(2, 9), st.integers(1, 4)

    def line(depth: int) -> tuple[Tree, ...]:
        nonlocal left
        parts = list[Tree]()
        for _ in range(draw(st.integers(1, 4))):
            if left:
                left -= 1
                parts.append(part(draw(st.sampled_from(LEAVES + DISPATCHERS if depth < 3 else LEAVES)), depth))
        return tuple(parts)

    def branch(depth: int) -> tuple[tuple[Tree, ...], int | None]:
        return line(depth + 1), draw(st.one_of(st.none(), st.integers(1, 6)))

    def part(kind: str, depth: int) -> Tree:
        match kind:
            case "filter":
                return kind, draw(few), draw(st.sampled_from([rj.Cancel("no"), rj.Complete(), rj.Discard("no")]))
            case "map" | "enrich" | "batch":
                return kind, draw(width), draw(few)
            case "execute":
                return kind, draw(width)
            case "drop" | "break":
                return kind, draw(few)
            case "balance" | "broadcast":
                return kind, tuple(branch(depth) for _ in range(draw(st.integers(1, 3))))
            case "partition":
                return kind, draw(st.integers(1, 3)), draw(st.integers(1, 9)), branch(depth), draw(st.booleans())
        return (kind,)

    return line(0)


class World:
    """The operators of one example, and what they do to which job: each mischief to a job once, so that all of it ends."""

    def __init__(self, max_demand: int) -> None:
        self.max_demand = max_demand
        self.done = Counter[tuple[str, int]]()
        self.places = 0

    def once(self, what: str, n: int, every: int) -> bool:
        """Whether a job is to suffer this, for the first time."""
        if n % every:
            return False
        self.done[what, n] += 1
        return self.done[what, n] == 1

    def line(self, parts: tuple[Tree, ...]) -> list[Any]:
        return [self.operator(part) for part in parts]

    def branch(self, described: tuple[tuple[Tree, ...], int | None]) -> Any:
        parts, max_demand = described
        return rj.branch(*self.line(parts), rj.complete(), max_demand=max_demand)

    def operator(self, part: Tree) -> Any:
        self.places += 1
        place = f"{part[0]} {self.places}"
        match part:
            case "filter", every, otherwise:
                return rj.filter(lambda job: job.args["n"] % every, otherwise=otherwise)
            case "map", width, every:
                return rj.map(self.slowly(place, every, lambda job: job), concurrency=width)
            case "enrich", width, every:
                return rj.enrich(self.slowly(place, every, lambda job: {place: 1}), concurrency=width, timeout=5)
            case "batch", width, every:
                return compose(
                    rj.buffer(min(width, self.max_demand), 1.0 if every % 2 else None),
                    rj.execute_batch(self.batch(place, every), concurrency=width),
                )
            case "execute", width:
                return rj.execute(concurrency=width)
            case "drop", every:
                return ops.filter(lambda item: not (isinstance(item, rj.Job) and self.once(place, item.args["n"], every)))
            case "break", every:
                return ops.map(lambda item: self.breaking(place, item, every))
            case ("observe_on",):
                return lambda source: ops.observe_on(AsyncIOThreadSafeScheduler(asyncio.get_running_loop()))(source)
            case ("complete",):
                return rj.complete()
            case ("ack",):
                return rj.ack()
            case "balance", branches:
                return rj.balance(*map(self.branch, branches))
            case "broadcast", branches:
                return rj.broadcast(*map(self.branch, branches))
            case "partition", n, keys, branch, strict:
                return rj.partition(n, by=lambda job: job.args["n"] % keys, branch=self.branch(branch), strict=strict)
        raise AssertionError(part)

    def slowly(self, place: str, every: int, give: Callable[[rj.Job], Any]) -> Any:
        async def work(job: rj.Job) -> Any:
            n = job.args["n"]
            await asyncio.sleep(n % 3)
            if self.once(place, n, every):
                raise [ValueError("no"), rj.Snooze(2), rj.Retry(1), rj.Cancel("no"), rj.Release(1)][n % 5]
            return give(job)

        return work

    def batch(self, place: str, every: int) -> Any:
        async def handle(jobs: list[rj.Job]) -> Any:
            await asyncio.sleep(len(jobs) % 3)
            return [rj.Retry(1) if self.once(place, job.args["n"], every) else rj.Complete() for job in jobs]

        return handle

    def breaking(self, place: str, item: Any, every: int) -> Any:
        # a few times in all: a pipeline that breaks more often is to end
        if (
            isinstance(item, rj.Job)
            and sum(self.done[place, n] for n in range(JOBS)) < 2
            and self.once(place, item.args["n"], every)
        ):
            raise RuntimeError(place)
        return item

    async def job(self, n: int) -> Any:
        """What every job does."""
        self.done["job", n] += 1
        await asyncio.sleep(n % 4)
        if self.done["job", n] < 3:
            match n % 7:
                case 0:
                    raise ValueError("no")
                case 1:
                    return rj.Snooze(1)
                case 2:
                    return rj.Discard("no")
        return None


class Cancelling(MemorySource):
    """A source whose jobs may be cancelled by request, as rows are: one that does not end then comes back no more."""

    def __init__(self, jobs: Iterable[rj.Job]) -> None:
        super().__init__(jobs)
        self.to_cancel = set[int]()

    async def settle(self, finished: list[rj.Finished]) -> None:
        await super().settle([self._cancelled(one) for one in finished])

    def _cancelled(self, one: rj.Finished) -> rj.Finished:
        goes_on = isinstance(one.outcome, rj.Retry | rj.Snooze | rj.Release)
        return rj.Finished(one.job, rj.Cancel("by request")) if goes_on and one.job.id in self.to_cancel else one


async def cancel(requests: Requests, source: Cancelling, watched: Watched, running: Running) -> None:
    """At some times, ask for some of the jobs that are held to be cancelled, as a node does that is told so."""
    loop, claims = asyncio.get_running_loop(), set[tuple[int, int]]()
    for at, every in sorted(requests):
        await asyncio.sleep(at - loop.time())
        attempts = dict(watched.fetched)
        chosen = {(id_, attempts[id_]) for id_ in running.held_ids if id_ % every == 0}
        event("jobs were cancelled by request" if chosen else "nothing was held that could be cancelled")
        source.to_cancel |= {id_ for id_, _ in chosen}
        claims |= chosen
        running.cancel(frozenset(claims))


async def go_through(
    line: tuple[Tree, ...], max_demand: int, min_demand: int, stopped_at: float | None, requests: Requests
) -> None:
    world = World(max_demand)
    definition = job_type(world.job, name="random", backoff=lambda attempt, error: 1.0)
    source = Cancelling(a_job(definition=definition, args={"n": n}, max_attempts=ATTEMPTS) for n in range(JOBS))
    source.close()
    watched = Watched(source, max_demand, min_demand)
    try:
        stages = [*world.line(line), rj.complete(), rj.ack()]
        pipeline: Any = rj.pull(watched, max_demand=max_demand, min_demand=min_demand).pipe(*stages)
    except rj.InvalidOption:
        event("refused: a buffer in it could never be full")
        return
    async with runs(pipeline, max_restarts=100, grace=0) as observed:
        waiting = asyncio.create_task(observed.running.wait())
        cancelling = asyncio.create_task(cancel(requests, source, watched, observed.running))
        if stopped_at is not None:
            await asyncio.wait([waiting], timeout=stopped_at)
            waiting.cancel()
        else:
            end = asyncio.get_running_loop().time() + HOURS
            while not waiting.done() and asyncio.get_running_loop().time() < end:
                await asyncio.wait([waiting], timeout=600)
                if not waiting.done():
                    gc.collect()  # a job that lies in a cycle is dropped when that is collected
            assert waiting.done(), f"{len(observed.running.held_ids)} jobs are held for ever: {source._open}"
        cancelling.cancel()
        with suppress(asyncio.CancelledError):
            await cancelling
        broke = sum(isinstance(one, PipelineRestarted | BranchRestarted) for one in observed.events)
        event(f"broke {min(broke, 3)}, dropped {min(3, sum(isinstance(one, JobDropped) for one in observed.events))}")
    assert not observed.running.held_ids
    watched.hold_to_the_laws()
    if stopped_at is None:
        ended = Counter(one.job.id for one in source.settled if isinstance(one.outcome, rj.Complete | rj.Cancel | rj.Discard))
        assert len(ended) == JOBS
        assert max(ended.values()) == 1


@pytest.mark.timeout(120 + EXAMPLES)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    line=lines(),
    demand=st.integers(1, 12).flatmap(lambda most: st.tuples(st.just(most), st.integers(0, most - 1))),
    stopped_at=st.one_of(st.none(), st.floats(0, 20)),
    requests=st.lists(st.tuples(st.floats(0, 20), st.integers(1, 5)), max_size=2),
)
def test_every_job_is_settled_once_and_demand_is_kept_in_any_pipeline(line, demand, stopped_at, requests):
    virtually(go_through(line, *demand, stopped_at, requests))
