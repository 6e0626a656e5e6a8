"""How each thing is measured, once: rows are laid, a program is started, and the clock runs from the first job on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from statistics import median, quantiles

import msgspec

from rxjobs.bench.bodies import COMPUTING, NOTED, NOTHING, STAYING
from rxjobs.bench.figures import Values
from rxjobs.bench.ground import Ground
from rxjobs.bench.program import Program
from rxjobs.bench.said import Compute, Computed, Hop, Hopped, Level, Looked, Reached, Runner, Send, Sent, Way, Work

CONCURRENCY = 50
MARKS = 20
"""How often a worker tells how far it is."""
LOOK_SECONDS = 0.005
SETTLE_SECONDS = 1.0
"""How long a worker is left alone before it counts as idle."""
MB, KB = 1e6, 1e3


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """How it went until so many jobs were finished."""

    finished: int
    ended_at: float
    marks: Sequence[Reached]
    """What the one worker told on the way, or the first of several."""
    first_at: float
    """When the first body started in any worker."""
    at_end: Sequence[Reached]
    """How far each worker was then."""

    @property
    def rate(self) -> float:
        """Jobs a second, from the first job's start until the last is finished in the database."""
        return self.finished / (self.ended_at - self.first_at)

    @property
    def cpu(self) -> float:
        """Microseconds of CPU that the worker took for a job."""
        (end,) = self.at_end
        return (end.cpu - self.marks[0].cpu) / end.bodies * 1e6

    @property
    def peak(self) -> float:
        """The most memory that the worker ever took, in MB."""
        (end,) = self.at_end
        return end.peak / MB


async def drain(
    ground: Ground,
    runner: Runner,
    jobs: int,
    *,
    backlog: int = 0,
    concurrency: int = CONCURRENCY,
    telemetry: Level = "off",
    workers: int = 1,
    computing: bool = False,
    children: int = 0,
) -> Drained:
    """Have jobs run that are all ready at the start, or the first of a backlog, by so many worker processes."""
    await ground.lay(runner, COMPUTING if computing else NOTHING, max(jobs, backlog))
    step = max(1, jobs // MARKS)
    order = Work(
        dsn=ground.dsn, schema=ground.schema, runner=runner, concurrency=concurrency, step=step,
        telemetry=telemetry, computing=computing, children=children,
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        programs = [await stack.enter_async_context(ground.started("worker", order)) for _ in range(workers)]
        for program in programs:
            program.go_on()
        # each may have started some that it has not told of yet; not until then is the database asked, which takes its time too
        await _until_started(programs, jobs - workers * (step - 1))
        finished = 0
        while finished < jobs:
            _check(programs)
            finished = await ground.finished(runner)
            ended_at = time.monotonic()
            await asyncio.sleep(LOOK_SECONDS)
        at_end = [(await look(program)).now for program in programs]
        return Drained(
            finished=finished,
            ended_at=ended_at,
            marks=programs[0].marks,
            first_at=min(program.marks[0].at for program in programs if program.marks),
            at_end=at_end,
        )


async def throughput(ground: Ground, *, runner: Runner, jobs: int, concurrency: int) -> Values:
    """Run jobs that do nothing, so many at once."""
    return _values(await drain(ground, runner, jobs, concurrency=concurrency), runner)


async def backlog(ground: Ground, *, runner: Runner, jobs: int, depth: int) -> Values:
    """Run the first jobs of so many that are ready."""
    drained = await drain(ground, runner, min(jobs, depth), backlog=depth)
    return _values(drained, runner)


async def telemetry(ground: Ground, *, jobs: int, level: Level) -> Values:
    """Run jobs that do nothing while so much is told of them."""
    drained = await drain(ground, "rxjobs", jobs, telemetry=level)
    return {"rate": drained.rate, "cpu": drained.cpu}


async def workers(ground: Ground, *, runner: Runner, jobs: int, count: int, concurrency: int) -> Values:
    """Run jobs that do nothing in so many worker processes, so many at once in each."""
    return {"rate": (await drain(ground, runner, jobs, workers=count, concurrency=concurrency)).rate}


async def enqueue(ground: Ground, *, runner: Runner, way: Way, count: int) -> Values:
    """Enqueue so many jobs, which nobody runs."""
    await ground.lay(runner, NOTED, 0)
    async with ground.started("enqueuer", _send(ground, runner, way, count)) as program:
        program.go_on()
        sent = await program.ask(Sent)
    return {"rate": count / sent.seconds}


async def latency(ground: Ground, *, runner: Runner, count: int) -> Values:
    """Have an idle worker run twenty jobs a second: how long from the call that enqueues until the body starts."""
    await ground.lay(runner, NOTED, 0)
    work = Work(dsn=ground.dsn, schema=ground.schema, runner=runner, concurrency=CONCURRENCY, step=1)
    async with (
        ground.started("worker", work) as worker,
        ground.started("enqueuer", _send(ground, runner, "paced", count)) as enqueuer,
    ):
        worker.go_on()
        await asyncio.sleep(SETTLE_SECONDS)
        enqueuer.go_on()
        sent = await enqueuer.ask(Sent)
        starts: dict[int, float] = {}
        while len(starts) < count:
            starts = {number: at for number, at in (await look(worker)).starts if number >= 0}
            await asyncio.sleep(0.1)
    waited = [(starts[number] - called) * 1000 for number, called in enumerate(sent.calls)]
    cuts = quantiles(waited, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98]}


async def memory(ground: Ground, *, jobs: int) -> Values:
    """How much the worker takes at most, and how much more at the last job than when a tenth of them had started."""
    drained = await drain(ground, "rxjobs", jobs)
    tenth = next(mark for mark in drained.marks if mark.bodies >= jobs / 10)
    return {"peak": drained.peak, "growth": (drained.marks[-1].resident - tenth.resident) / MB}


async def in_flight(ground: Ground, *, few: int, many: int) -> Values:
    """What a worker takes while so many jobs run in it, and then many more."""
    await ground.lay("rxjobs", STAYING, few)
    order = Work(dsn=ground.dsn, schema=ground.schema, runner="rxjobs", concurrency=many, step=few)
    async with ground.started("worker", order) as worker:
        worker.go_on()
        at_few = await _at_rest(worker, few)
        await ground.add("rxjobs", STAYING, many - few)
        at_many = await _at_rest(worker, many)
    per_job = (at_many.resident - at_few.resident) / (many - few)
    return {"before": at_few.resident / MB, "after": at_many.resident / MB, "per_job": per_job / KB}


async def compute(ground: Ground, *, jobs: int, children: int) -> Values:
    """Run jobs that keep a core busy, in the worker itself or in its children; while these start up it does not count."""
    drained = await drain(ground, "rxjobs", jobs, concurrency=4, computing=True, children=children)
    warm = next(mark for mark in drained.marks if mark.bodies >= jobs / 4)
    return {"rate": (drained.finished - warm.bodies) / (drained.ended_at - warm.at)}


async def bare(ground: Ground, *, jobs: int, processes: int) -> Values:
    """Compute the same in so many processes that do nothing else: what the machine gives, whoever asks."""
    order = Compute(dsn=ground.dsn, schema=ground.schema, runner="raw", count=jobs, processes=processes)
    async with ground.started("bare", order) as program:
        program.go_on()
        computed = await program.ask(Computed)
    return {"rate": jobs / computed.seconds}


async def hop(ground: Ground, *, count: int) -> Values:
    """How long a call into a child process takes that does nothing there."""
    async with ground.started("hop", Hop(dsn=ground.dsn, schema=ground.schema, runner="rxjobs", count=count)) as program:
        program.go_on()
        hopped = await program.ask(Hopped)
    return {"hop": median(hopped.seconds) * 1e6}


async def look(program: Program) -> Looked:
    """How far a worker is now."""
    program.go_on()
    return await program.ask(Looked)


def _values(drained: Drained, runner: Runner) -> Values:
    found = {"rate": drained.rate, "cpu": drained.cpu}
    # the raw worker has imported rxjobs too, so that its memory says nothing
    return found if runner == "raw" else {**found, "peak": drained.peak}


async def _until_started(programs: Sequence[Program], bodies: int) -> None:
    while sum(program.bodies for program in programs) < bodies:
        _check(programs)
        await asyncio.sleep(LOOK_SECONDS)


async def _at_rest(worker: Program, bodies: int) -> Reached:
    """How far a worker is when so many jobs run in it and it has nothing more to do."""
    await _until_started([worker], bodies)
    await asyncio.sleep(SETTLE_SECONDS)
    return (await look(worker)).now


def _check(programs: Sequence[Program]) -> None:
    for program in programs:
        program.check()


def _send(ground: Ground, runner: Runner, way: Way, count: int) -> Send:
    return Send(dsn=ground.dsn, schema=ground.schema, runner=runner, way=way, count=count)
