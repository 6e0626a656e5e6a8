"""A migrated database of the test's own, and a store on it."""

from __future__ import annotations

import asyncio
import time

import pytest

from rxjobs.awaiting import LoopScheduler
from rxjobs.services.lead import Leadership
from rxjobs.store.database import Database
from rxjobs.store.store import Store
from tests.store.ground import SCHEMA, a_leader, migrated


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


@pytest.fixture
async def leadership(connection):
    """That of a node that leads."""
    node, term = await a_leader(connection)
    leadership = Leadership(node, 600.0, lambda event: None)
    leadership.asked(term, time.monotonic())
    return leadership
