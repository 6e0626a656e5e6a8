"""Rows by one statement."""

from __future__ import annotations

import asyncpg
import pytest

from rxjobs.job import State
from rxjobs.store import migrate
from rxjobs.testing import count, fill


@pytest.fixture
async def connection(dsn):
    connection = await asyncpg.connect(dsn)
    await migrate.migrate(connection, "rxjobs")
    yield connection
    await connection.close()


async def test_rows_have_the_arguments_given_or_made(connection):
    await fill(connection, "send", 3, args={"to": "Ada"}, queue="mail")
    await fill(connection, "count", 3, args_sql="jsonb_build_object('n', n)")
    rows = await connection.fetch("SELECT type, queue, args::text FROM rxjobs.live_jobs ORDER BY id")
    assert [tuple(row) for row in rows] == [
        *[("send", "mail", '{"to": "Ada"}')] * 3,
        *[("count", "default", f'{{"n": {n}}}') for n in range(3)],
    ]


@pytest.mark.parametrize("state", State)
async def test_rows_may_be_in_any_state(connection, state):
    await fill(connection, "work", 5, state=state)
    assert await count(connection, state=state) == 5
    assert await count(connection) == 5
    assert await count(connection, queue="default", state=state) == 5
    assert await count(connection, queue="other") == 0
    assert await connection.fetchval("SELECT count(DISTINCT id) FROM rxjobs.jobs WHERE state = $1", str(state)) == 5


async def test_ids_of_finished_rows_and_others_do_not_meet(connection):
    await fill(connection, "work", 5, state="completed")
    await fill(connection, "work", 5)
    assert await connection.fetchval("SELECT count(DISTINCT id) FROM rxjobs.jobs") == 10


async def test_a_state_that_is_none_is_refused(connection):
    with pytest.raises(ValueError, match="lost"):
        await fill(connection, "work", 5, state="lost")
    with pytest.raises(ValueError, match="lost"):
        await count(connection, state="lost")


async def test_another_schema_may_be_named(connection):
    await migrate.migrate(connection, "other")
    await fill(connection, "work", 2, schema="other")
    assert (await count(connection, schema="other"), await count(connection)) == (2, 0)
