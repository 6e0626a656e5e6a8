"""What befell others with keys: those of unique jobs, and those that jobs take turns by. See docs/faults.md."""

from __future__ import annotations

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.store.limit_statements import Limits
from rxjobs.testing import fill
from tests.store.ground import a_leader, a_node, rescue_some
from tests.waiting import until


@pytest.fixture
async def app(dsn):
    async with rj.App(dsn, migrate=True) as app:
        yield app


@pytest.fixture
async def connection(app):
    connection = await asyncpg.connect(app.dsn)
    yield connection
    await connection.close()


async def test_a_unique_job_whose_node_died_keeps_its_key_until_it_has_run_and_no_longer(app, connection):
    """As oban#424, #429: it stayed executing for ever, and so nobody else could be inserted."""
    ran = []

    @app.job(name="work", unique=rj.Unique())
    async def work(n: int) -> None:
        ran.append(n)

    first = await work.enqueue(1)
    dead, (leader, term) = await a_node(connection), await a_leader(connection)
    assert len(await app.store.fetch_jobs("default", 10, ["work"], dead)) == 1
    await connection.execute("UPDATE rxjobs.nodes SET expires_at = now() - interval '1 s' WHERE id = $1", dead)
    assert await work.enqueue(1) == rj.Enqueued(first.id, "executing", duplicate=True)
    assert await rescue_some(app.store, dead, 10, leader, term, delay=0.0) == {first.id}
    again = await work.enqueue(1)
    assert (again.id, again.duplicate) == (first.id, True)
    await connection.execute("DELETE FROM rxjobs.leaders")
    async with app.running():
        await until(lambda: connection.fetchval("SELECT state = 'completed' FROM rxjobs.finished_jobs WHERE id = $1", first.id))
    assert ran == [1]
    assert not (await work.enqueue(1)).duplicate


async def test_one_at_a_time_goes_on_after_the_last_attempt_of_a_job_whose_node_was_lost(app, connection):
    """As graphile-worker#254: the connection was cut at the last attempt's end, and its serial queue stood still for good."""
    await fill(connection, "work", 2, queue="mail")
    await connection.execute("UPDATE rxjobs.live_jobs SET max_attempts = 1")
    await app.store.change_limits("mail", lambda _: Limits(concurrency=1))
    dead, other, (leader, term) = await a_node(connection), await a_node(connection), await a_leader(connection)
    (lost,) = await app.store.fetch_limited("mail", 10, ["work"], dead, [], "{}")
    assert await app.store.fetch_limited("mail", 10, ["work"], other, [], "{}") == []
    await connection.execute("UPDATE rxjobs.nodes SET expires_at = now() - interval '1 s' WHERE id = $1", dead)
    assert await rescue_some(app.store, dead, 10, leader, term) == {lost["id"]}
    state, error = await connection.fetchrow(
        "SELECT state, errors -> -1 ->> 'type' FROM rxjobs.finished_jobs WHERE id = $1", lost["id"]
    )
    assert (state, error) == ("discarded", "rxjobs.NodeLost")
    (following,) = await app.store.fetch_limited("mail", 10, ["work"], other, [], "{}")
    assert following["id"] != lost["id"]
