"""A migrated schema, a connection to look at it with, and the store."""

from __future__ import annotations

import pytest

from rxjobs.store.database import Database
from rxjobs.store.store import Store
from tests.store.ground import SCHEMA, a_node, migrated


@pytest.fixture
async def connection(dsn):
    connection = await migrated(dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def database(dsn):
    database = Database(dsn)
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
