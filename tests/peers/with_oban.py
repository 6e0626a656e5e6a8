"""Oban for Python, as its documentation has one use it, with its defaults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import islice

from oban import Job, Oban, worker
from oban.schema import install as install_schema

from rxjobs.bench.bodies import NOTED, NOTHING, QUEUE, Body
from tests.peers.peers import JOBS_A_CALL

_bodies: dict[str, Body] = {}
"""What the workers run: they are classes that Oban finds by their names."""


@worker(queue=QUEUE)
class Nothing:
    """The job that does nothing."""

    async def process(self, job: Job) -> None:
        await _bodies[NOTHING](job.args["number"])


@worker(queue=QUEUE)
class Noted:
    """The job whose start is noted."""

    async def process(self, job: Job) -> None:
        await _bodies[NOTED](job.args["number"])


WORKERS = {NOTHING: Nothing, NOTED: Noted}


class Client:
    """Enqueues jobs of one worker, each with its number."""

    def __init__(self, oban: Oban, type: str) -> None:
        self._oban = oban
        self._worker = WORKERS[type]

    async def enqueue(self, number: int) -> None:
        await self._oban.enqueue(self._worker.new({"number": number}))

    async def enqueue_many(self, numbers: Iterable[int]) -> None:
        left = iter(numbers)
        while jobs := [self._worker.new({"number": number}) for number in islice(left, JOBS_A_CALL)]:
            await self._oban.enqueue_many(jobs)


async def install(dsn: str) -> None:
    """Make its tables."""
    async with _pool(dsn) as pool:
        await install_schema(pool)


@asynccontextmanager
async def opened(dsn: str, type: str) -> AsyncIterator[Client]:
    """A client for jobs of one type."""
    async with _pool(dsn) as pool, Oban(pool=pool) as oban:
        yield Client(oban, type)


async def work(dsn: str, concurrency: int, bodies: Mapping[str, Body]) -> None:
    """Run a worker until cancelled."""
    _bodies.update(bodies)
    async with _pool(dsn) as pool, Oban(pool=pool, queues={QUEUE: concurrency}):
        await asyncio.get_running_loop().create_future()


@asynccontextmanager
async def _pool(dsn: str) -> AsyncIterator[object]:
    pool = await Oban.create_pool(dsn)
    try:
        yield pool
    finally:
        await pool.close()
