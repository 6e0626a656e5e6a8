"""Whoever pins the vacuum horizon is named, once, and once more when he is gone."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from rxjobs.events import DatabaseFreed, DatabasePinned
from rxjobs.services.horizon import Pins, horizon
from rxjobs.services.lead import Leadership
from rxjobs.store.statements import statement
from tests.servers import PrivatePostgres
from tests.store.ground import a_node

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def events():
    return []


@pytest.fixture
def pins(events):
    return Pins(events.append, 60.0)


def a_row(**columns):
    return {
        "kind": "session", "name": "42", "username": "report", "application": "psql", "state": "idle in transaction",
        "held": "700", "age": 100.0, "now": NOW, **columns,
    }  # fmt: skip


async def looks(connection, pins, times=2):
    for _ in range(times):
        age = pins.seen(await connection.fetch(statement("oldest_transactions", "rxjobs")))
    return age


@pytest.fixture
async def other(dsn):
    other = await asyncpg.connect(dsn, server_settings={"application_name": "a report"})
    yield other
    await other.close()


@pytest.mark.parametrize(
    "begin",
    [
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1",
        "BEGIN; CREATE TABLE written ()",
        "BEGIN; DECLARE open CURSOR FOR SELECT FROM pg_class; FETCH open",
    ],
    ids=["an old snapshot", "something written", "an open cursor"],
)
async def test_a_session_is_named_with_its_pid_and_what_to_do_and_only_once(connection, other, events, caplog, begin):
    caplog.set_level(logging.INFO)
    pins = Pins(events.append, 0.0)
    await other.execute(begin)
    assert await looks(connection, pins, 4) > 0
    pid = other.get_server_pid()
    (event,) = events
    assert isinstance(event, DatabasePinned)
    (line,) = caplog.messages
    for part in (f"pid {pid}", "application a report", "idle in transaction", f"pg_terminate_backend({pid})", "user "):
        assert part in line
    await other.execute("ROLLBACK")
    assert await looks(connection, pins) == 0
    assert [type(event) for event in events] == [DatabasePinned, DatabaseFreed]
    assert len(caplog.records) == 2
    assert caplog.records[1].levelno == logging.INFO


async def test_a_transaction_that_only_idles_pins_nothing(connection, other, pins):
    await other.execute("BEGIN; SELECT FROM pg_class LIMIT 1")
    assert await connection.fetch(statement("oldest_transactions", "rxjobs")) == []


async def test_other_databases_pin_nothing_here(connection, postgres, pins):
    elsewhere = await asyncpg.connect(postgres)
    await elsewhere.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1")
    assert await connection.fetch(statement("oldest_transactions", "rxjobs")) == []
    await elsewhere.close()


def test_who_has_just_begun_is_not_told(pins, events):
    assert [pins.seen([a_row(age=age)]) for age in (1.0, 16.0, 59.0)] == [0.0, 16.0, 59.0]
    assert events == []
    assert pins.seen([a_row(age=60.0)]) == 60.0
    assert len(events) == 1


def test_a_long_transaction_that_goes_on_to_newer_snapshots_pins_nothing(pins, events):
    assert [pins.seen([a_row(held=str(held), age=300.0)]) for held in range(5)] == [0.0] * 5
    assert events == []


def test_where_the_beginning_is_not_shown_the_time_since_the_first_look_counts(pins, events, caplog):
    rows = [
        a_row(kind="slot", name="standby_1", age=None, state="not in use", now=NOW + timedelta(seconds=at)) for at in (0, 30, 61)
    ]
    assert [pins.seen([row]) for row in rows] == [0.0, 30.0, 61.0]
    assert len(events) == 1
    assert "replication slot standby_1 (not in use)" in caplog.text
    assert "pg_drop_replication_slot('standby_1')" in caplog.text


def test_each_one_is_told_and_gone_by_itself(pins, events):
    both = [a_row(), a_row(name="43")]
    for rows in (both, both, both[:1], both[:1]):
        pins.seen(rows)
    assert [type(event) for event in events] == [DatabasePinned, DatabasePinned, DatabaseFreed]
    assert "43" in events[2].holder


async def test_without_rights_over_others_they_are_named_all_the_same(connection, other, events, caplog):
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f'CREATE ROLE "{name}_nobody"')
    await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1")
    await connection.execute(f'SET ROLE "{name}_nobody"')
    pins = Pins(events.append, 0.0)
    await looks(connection, pins)
    await connection.execute("RESET ROLE")
    await connection.execute(f'DROP ROLE "{name}_nobody"')
    assert f"pid {other.get_server_pid()}" in caplog.text
    assert "in a state that this user may not see" in caplog.text


async def test_a_prepared_transaction_is_named_with_its_gid(events, caplog):
    async with PrivatePostgres(max_prepared_transactions="2") as postgres:
        connection = await asyncpg.connect(postgres.dsn)
        await connection.execute("BEGIN; CREATE TABLE written (); PREPARE TRANSACTION 'forgotten'")
        pins = Pins(events.append, 0.0)
        assert await looks(connection, pins) > 0
        assert "prepared transaction forgotten (user postgres)" in caplog.text
        assert "ROLLBACK PREPARED 'forgotten'" in caplog.text
        await connection.execute("ROLLBACK PREPARED 'forgotten'")
        assert await looks(connection, pins) == 0
        await connection.close()


async def test_the_leader_looks_and_nobody_else(connection, store, other, scheduler, events):
    node = await a_node(connection)
    leadership = Leadership(node, 600.0, events.append)
    ages = asyncio.Queue()
    watching = horizon(store, leadership, emit=events.append, every_seconds=0.02, long_seconds=0.0).subscribe(
        ages.put_nowait, scheduler=scheduler
    )
    await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1")
    async with asyncio.timeout(60):
        assert [await ages.get() for _ in range(5)] == [0.0] * 5
        assert events == []
        leadership.asked(1, asyncio.get_running_loop().time())
        while not await ages.get():
            pass
    watching.dispose()
    assert [event for event in events if isinstance(event, DatabasePinned)]
