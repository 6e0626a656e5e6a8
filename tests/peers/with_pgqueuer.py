"""PgQueuer, as its documentation has one use it, over a pool of asyncpg."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import islice

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from rxjobs.bench.bodies import Body
from tests.peers.peers import JOBS_A_CALL

CONNECTIONS = 10


class Client:
    """Enqueues jobs of one entrypoint, whose payload is their number."""

    def __init__(self, queries: Queries, type: str) -> None:
        self._queries = queries
        self._type = type

    async def enqueue(self, number: int) -> None:
        await self._queries.enqueue(self._type, b"%d" % number)

    async def enqueue_many(self, numbers: Iterable[int]) -> None:
        left = iter(numbers)
        while payloads := [b"%d" % number for number in islice(left, JOBS_A_CALL)]:
            await self._queries.enqueue([self._type] * len(payloads), payloads, [0] * len(payloads))


async def install(dsn: str) -> None:
    """Make its tables."""
    async with _pool(dsn) as pool:
        await Queries.from_asyncpg_pool(pool).install()


@asynccontextmanager
async def opened(dsn: str, type: str) -> AsyncIterator[Client]:
    """A client for jobs of one type."""
    async with _pool(dsn) as pool:
        yield Client(Queries.from_asyncpg_pool(pool), type)


async def work(dsn: str, concurrency: int, bodies: Mapping[str, Body]) -> None:
    """Run a worker until cancelled."""
    async with _pool(dsn) as pool:
        worker = PgQueuer.from_asyncpg_pool(pool)
        for name, body in bodies.items():
            worker.entrypoint(name)(_entry(body))
        # a batch may be half of what runs at once, and no more
        await worker.run(batch_size=concurrency // 2, max_concurrent_tasks=concurrency)


def _entry(body: Body):
    async def run(job: Job) -> None:
        assert job.payload is not None
        await body(int(job.payload))

    return run


def _pool(dsn: str):
    return asyncpg.create_pool(dsn, min_size=CONNECTIONS, max_size=CONNECTIONS)
