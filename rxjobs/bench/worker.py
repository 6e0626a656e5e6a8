"""A worker that is measured, a program of its own: `source → execute → ack` on rxjobs' public API, or the bare loop beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import rxjobs as rj
from rxjobs.bench.app import app_of
from rxjobs.bench.bodies import COMPUTING, QUEUE, bodies, compute
from rxjobs.bench.raw import RawWorker
from rxjobs.bench.said import Bench, Level, Ready, Work, tell
from rxjobs.bench.tally import Tally
from rxjobs.events import Event, JobStarted
from rxjobs.serving import run
from rxjobs.telemetry.providers import Telemetry

TIMEOUT = 60.0
"""Seconds that a job may take. None here takes as long, but a runner that cannot end a job is not what anybody runs."""
SAMPLED: dict[Level, float | None] = {"metrics": None, "sampled-10": 0.1, "all": 1.0}
"""Which part of all traces is recorded at each level of telemetry; None where no span is made at all."""


async def main() -> None:
    """Do the work that stdin orders, and answer each look, until stdin ends."""
    bench = await Bench.listen()
    order = await bench.order(Work)
    tally = Tally(order.step)
    work = _work_bare if order.runner == "raw" else _work
    await work(order, tally, bench)


async def _work(order: Work, tally: Tally, bench: Bench) -> None:
    app = app_of(order, _telemetry(order.telemetry))
    for name, body in bodies(tally).items():
        app.job(name=name, timeout=TIMEOUT)(body)
    if order.computing:
        executor = rj.in_processes(order.children) if order.children else rj.on_loop()
        app.job(name=COMPUTING, timeout=TIMEOUT, executor=executor)(compute)
        app.events.subscribe(lambda event: _count(event, tally))
    pipeline = app.source(QUEUE, max_demand=2 * order.concurrency).pipe(rj.execute(concurrency=order.concurrency), rj.ack())
    async with app:
        tell(Ready())
        if await bench.says_on():
            async with app.running(pipeline) as running:
                await until_ended(running.wait(), tally, bench)


async def _work_bare(order: Work, tally: Tally, bench: Bench) -> None:
    async with RawWorker.connected(order.dsn, order.schema, order.concurrency, bodies(tally)) as worker:
        tell(Ready())
        if await bench.says_on():
            await until_ended(worker.run(), tally, bench)


def _telemetry(level: Level) -> Telemetry:
    if level == "off":
        return Telemetry()
    # here, since what a worker does not use is not to be found in its memory
    from rxjobs.telemetry.nowhere import to_nowhere

    return to_nowhere(sampled=SAMPLED[level])


def _count(event: Event, tally: Tally) -> None:
    if isinstance(event, JobStarted):
        tally.count(event.monotonic_time / 1e9)


async def until_ended(work: Coroutine[Any, Any, None], tally: Tally, bench: Bench) -> None:
    """Answer looks beside the work, until the bench has no more to say; raises what the work does."""
    working, answering = asyncio.ensure_future(work), asyncio.ensure_future(_answer(tally, bench))
    try:
        await asyncio.wait([working, answering], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        working.cancel()
        answering.cancel()
        await asyncio.wait([working, answering])


async def _answer(tally: Tally, bench: Bench) -> None:
    while await bench.says_on():
        tell(tally.look())


if __name__ == "__main__":
    run(main())
