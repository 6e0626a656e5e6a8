"""A migrated schema, a connection to look at it with, and the store."""

from __future__ import annotations

import asyncpg
import pytest

from rxjobs.store.database import Database
from rxjobs.store.store import Store
from tests.store.ground import SCHEMA, a_leader, a_node, a_shared_database, emptied


@pytest.fixture(scope="session")
def ground(databases):
    yield from a_shared_database(databases)


@pytest.fixture
async def connection(ground):
    connection = await asyncpg.connect(await emptied(ground))
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


@pytest.fixture
async def leader(connection):
    """A node that leads, and its term."""
    return await a_leader(connection)
