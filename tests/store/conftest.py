"""A migrated schema, a connection to look at it with, and the store."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from rxjobs.store.database import Database
from rxjobs.store.store import Store
from tests.store.ground import SCHEMA, a_node, migrated


@pytest.fixture(scope="session")
def ground(databases):
    """The DSN of a migrated database that is emptied for each test: that is ten times as fast as a new one."""

    async def migrate():
        await (await migrated(dsn)).close()

    dsn = databases.take()
    asyncio.run(migrate())
    yield dsn
    databases.give_back(dsn)


@pytest.fixture
async def connection(ground):
    connection = await asyncpg.connect(ground)
    await connection.execute("TRUNCATE rxjobs.live_jobs, rxjobs.finished_jobs, rxjobs.nodes RESTART IDENTITY")
    yield connection
    await connection.close()


@pytest.fixture
async def database(ground):
    database = Database(ground)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
async def store(connection, database):
    return Store(database, SCHEMA)


@pytest.fixture
async def node(connection):
    """A living node."""
    return await a_node(connection)
