"""A dashboard on a free port, by uvicorn, and a browser's requests to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest

import rxjobs as rj
from rxjobs.web.options import WebOptions
from rxjobs.web.serve import serve
from tests.servers import Databases

TOKEN, VIEW_TOKEN = "a-token-to-operate-with", "a-token-to-look-with"
OURS = {"sec-fetch-site": "same-origin"}
"""What a browser says of a request that our own page makes."""
EMPTIED = (
    "TRUNCATE rxjobs.live_jobs, rxjobs.finished_jobs, rxjobs.nodes, rxjobs.queues, rxjobs.breakers, rxjobs.cron_entries, "
    "rxjobs.job_types RESTART IDENTITY CASCADE"
)


@pytest.fixture(scope="session")
def migrated(databases: Databases) -> Iterator[str]:
    """The DSN of a migrated database that is emptied for each test."""
    dsn = databases.take()
    asyncio.run(rj.App(dsn).migrate())
    yield dsn
    databases.give_back(dsn)


@pytest.fixture
async def connection(migrated: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(migrated)
    await connection.execute(EMPTIED)
    yield connection
    await connection.close()


@pytest.fixture
async def dashboard(migrated: str, connection: asyncpg.Connection[Any]) -> AsyncIterator[Any]:
    """Starts a dashboard with these options; gives a client of it."""
    async with AsyncExitStack() as stack:

        async def started(**options: Any) -> httpx.AsyncClient:
            return await stack.enter_async_context(running(migrated, WebOptions(port=0, **options)))

        yield started


@asynccontextmanager
async def running(dsn: str, options: WebOptions) -> AsyncIterator[httpx.AsyncClient]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(serve(rj.App(dsn), options, address.set_result))
    await asyncio.wait([serving, address], return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        await serving
    port = httpx.URL(address.result()).port
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield client
    finally:
        serving.cancel()
        await asyncio.wait([serving])


async def job(connection: asyncpg.Connection[Any], type_: str = "send", queue: str = "mail", args: str = "{}") -> int:
    """A job that waits; gives its id."""
    insert = "INSERT INTO rxjobs.live_jobs (type, queue, args) VALUES ($1, $2, $3) RETURNING id"
    id_: int = await connection.fetchval(insert, type_, queue, args)
    return id_


async def dead_letter(connection: asyncpg.Connection[Any], **columns: str) -> int:
    """A dead letter with such columns; gives its id."""
    columns = {"type": "send", "queue": "mail", "args": "{}", "errors": "[]", "forensics": "{}", "meta": "{}", **columns}
    id_: int = await connection.fetchval(
        "INSERT INTO rxjobs.finished_jobs (id, inserted_at, scheduled_at, attempted_at, state, attempt, max_attempts, priority, "
        "type, queue, args, errors, forensics, meta, tags) SELECT nextval(pg_get_serial_sequence('rxjobs.live_jobs', 'id')), "
        "now(), now(), now(), 'discarded', 3, 3, 0, $1, $2, $3, $4, $5, $6, ARRAY[$7] RETURNING id",
        columns["type"], columns["queue"], columns["args"], columns["errors"], columns["forensics"], columns["meta"],
        columns.get("tag", "letters"),
    )  # fmt: skip
    return id_
