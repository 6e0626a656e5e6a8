"""A migrated database of the test's own, and a store on it."""

from __future__ import annotations

import asyncio

import pytest

from rxjobs.awaiting import LoopScheduler
from rxjobs.store.database import Database
from rxjobs.store.store import Store
from tests.store.ground import SCHEMA, migrated


@pytest.fixture
async def connection(dsn):
    connection = await migrated(dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def store(connection, dsn):
    database = Database(dsn)
    await database.open()
    yield Store(database, SCHEMA)
    await database.close()


@pytest.fixture
async def scheduler():
    return LoopScheduler(asyncio.get_running_loop())
