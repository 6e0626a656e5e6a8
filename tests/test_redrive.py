"""Dead letters that come back, by filter and at a rate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

import rxjobs as rj
from rxjobs import jobs as module
from rxjobs.testing import fill
from tests.store.ground import a_shared_database, emptied


@pytest.fixture(scope="module")
def ground(databases):
    yield from a_shared_database(databases)


@pytest.fixture
async def dsn(ground):
    return await emptied(ground)


@pytest.fixture
async def app(dsn):
    app = rj.App(dsn, migrate=True)
    async with app:
        yield app


@pytest.fixture
async def connection(app):
    connection = await asyncpg.connect(app.dsn)
    yield connection
    await connection.close()


async def dead(connection, count, type_="work", queue="default", error="ValueError", minutes=0):
    """Dead letters of that error, discarded so many minutes ago; gives their ids."""
    await fill(connection, type_, count, queue=queue, state="discarded")
    rows = await connection.fetch(
        "UPDATE rxjobs.finished_jobs SET attempt = 3, max_attempts = 3, errors = jsonb_build_array("
        "jsonb_build_object('attempt', 2, 'type', 'OSError'), jsonb_build_object('attempt', 3, 'type', $1::text)), "
        "finished_at = now() - $2::float8 * interval '1 minute', forensics = '{}' WHERE errors IS NULL RETURNING id",
        error, minutes,
    )  # fmt: skip
    return sorted(row["id"] for row in rows)


async def times(connection):
    """How many seconds after the first each job is due, by its id."""
    rows = await connection.fetch(
        "SELECT id, extract(epoch FROM scheduled_at - min(scheduled_at) OVER ())::float8 AS after FROM rxjobs.live_jobs ORDER BY id"
    )
    return {row["id"]: round(row["after"], 3) for row in rows}


async def test_they_come_back_at_the_rate_the_first_at_once_and_keep_their_errors(app, connection, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 4)
    ids = await dead(connection, 10)
    assert await app.jobs.redrive(type="work", rate=50) == 10
    assert await times(connection) == {id_: round(place / 50, 3) for place, id_ in enumerate(ids)}
    jobs = await app.jobs.list()
    assert {(job.attempt, job.max_attempts, len(job.errors), job.forensics) for job in jobs} == {(3, 4, 2, None)}
    states = [job.state for job in sorted(jobs, key=lambda job: job.id)]
    assert states[0] == "available"
    assert set(states[4:]) == {"scheduled"}


async def test_without_a_rate_all_come_back_at_once(app, connection):
    await dead(connection, 3)
    assert await app.jobs.redrive(queue="default", attempts=5) == 3
    assert await app.jobs.count() == {"available": 3}
    assert {job.max_attempts for job in await app.jobs.list()} == {8}


async def test_they_are_chosen_by_the_last_error_by_time_and_by_where_they_belong(app, connection):
    values = await dead(connection, 2)
    stock = await dead(connection, 2, error="shop.errors.NoStock", type_="order", queue="mail")
    old = await dead(connection, 1, minutes=90)
    await fill(connection, "work", 1, state="cancelled")
    assert await app.jobs.redrive(error="OSError") == 0  # not what they died of
    assert await app.jobs.redrive(error="NoStock", queue="default") == 0
    assert await app.jobs.redrive(error=["NoStock", "KeyError"], queue="mail", type="order") == 2
    assert sorted(await times(connection)) == stock
    assert await app.jobs.redrive(error="ValueError", since=timedelta(hours=1)) == 2
    assert sorted(await times(connection)) == sorted(values + stock)
    assert await app.jobs.redrive(since=datetime(2020, 1, 1, tzinfo=UTC)) == 1
    assert sorted(await times(connection)) == sorted(values + stock + old)
    assert await app.jobs.count() == {"available": 5, "cancelled": 1}


async def test_by_id_only_dead_letters_come_back(app, connection):
    ids = await dead(connection, 3)
    await fill(connection, "work", 1, state="cancelled")
    cancelled = (await app.jobs.list(state="cancelled"))[0].id
    assert await app.jobs.redrive([*ids[:2], ids[0], cancelled], rate=1) == 2
    assert await times(connection) == {ids[0]: 0.0, ids[1]: 1.0}
    assert await app.jobs.redrive(ids[2]) == 1


async def test_one_whose_unique_key_another_has_by_now_stays(app, connection, caplog):
    @app.job(name="once", unique=rj.Unique())
    async def once(n: int) -> None: ...

    first = [await once.enqueue(n=n) for n in range(3)]
    claimed = "UPDATE rxjobs.live_jobs SET state = 'executing', attempt = 1, attempted_at = now(), node = gen_random_uuid()"
    await connection.execute(claimed)
    await connection.execute(
        "WITH gone AS (DELETE FROM rxjobs.live_jobs RETURNING *) "
        "INSERT INTO rxjobs.finished_jobs (state, id, inserted_at, scheduled_at, attempt, max_attempts, priority, type, queue, "
        "args, unique_key, unique_states) SELECT 'discarded', id, inserted_at, scheduled_at, attempt, max_attempts, priority, "
        "type, queue, args, unique_key, unique_states FROM gone"
    )
    twin = await once.enqueue(n=1)
    assert not twin.duplicate
    assert await app.jobs.redrive(type="once", rate=10) == 2
    assert await app.jobs.count(type="once") == {"available": 2, "discarded": 1, "scheduled": 1}
    assert f"others have their unique keys: {first[1].id} ({twin.id})" in caplog.text


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "say which dead letters"),
        ({"ids": [1], "queue": "mail"}, "say which dead letters"),
        ({"queue": "mail", "rate": 0}, "rate is a number from 0.001"),
        ({"queue": "mail", "rate": True}, "rate is a number from 0.001"),
        ({"queue": "mail", "attempts": 0}, "attempts is a whole number from 1"),
        ({"since": datetime.fromisoformat("2026-01-01")}, "since is a datetime with a time zone"),
        ({"since": timedelta(seconds=-1)}, "since is a datetime with a time zone"),
        ({"since": "yesterday"}, "since is a datetime with a time zone"),
        ({"error": "\x00"}, "jobs are filtered by text"),
    ],
)
async def test_what_cannot_be_meant_is_refused(app, options, match):
    with pytest.raises(rj.InvalidOption, match=match):
        await app.jobs.redrive(**options)
