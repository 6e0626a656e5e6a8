import asyncio

import asyncpg

from rxjobs.store.statements import statement
from rxjobs.store.store import LONG_AGO
from tests.store.ground import a_row, states

NOW = "UPDATE rxjobs.live_jobs SET scheduled_at = now() + $2::float8 * interval '1 second' WHERE id = $1"


async def test_what_is_due_becomes_available_and_the_rest_says_when(store, connection, leader):
    due, later, held = [await a_row(connection, state=state) for state in ("scheduled", "retryable", "held")]
    await connection.execute(NOW, due, -1.0)
    await connection.execute(NOW, later, 30.0)
    staged = await store.stage_jobs(100, *leader)
    assert staged.jobs == 1
    assert staged.next is not None
    assert 29 < staged.next <= 30
    assert await states(connection, [due, later, held]) == ["available", "retryable", "held"]


async def test_with_nothing_waiting_there_is_no_next(store, leader):
    staged = await store.stage_jobs(100, *leader)
    assert (staged.jobs, staged.next) == (0, None)


async def test_the_longest_due_are_staged_first_up_to_the_limit(store, connection, leader):
    ids = [await a_row(connection, state="scheduled") for _ in range(5)]
    for place, id_ in enumerate(ids):
        await connection.execute(NOW, id_, -10.0 + place)
    assert (await store.stage_jobs(2, *leader))[0] == 2
    assert await states(connection, ids) == ["available", "available", "scheduled", "scheduled", "scheduled"]


async def test_what_was_due_before_the_instant_that_is_asked_from_is_left(store, connection, leader):
    ids = [await a_row(connection, state="scheduled") for _ in range(4)]
    for place, id_ in enumerate(ids):
        await connection.execute(NOW, id_, -10.0 + place)
    full = await store.stage_jobs(2, *leader)
    assert full.until == (await connection.fetchval("SELECT scheduled_at FROM rxjobs.live_jobs WHERE id = $1", ids[1]))
    await connection.execute("UPDATE rxjobs.live_jobs SET state = 'retryable' WHERE id = $1", ids[0])
    rest = await store.stage_jobs(10, *leader, full.until)
    assert rest.jobs == 2
    assert rest.until > full.until
    assert await states(connection, ids) == ["retryable", "available", "available", "available"]
    assert (await store.stage_jobs(10, *leader)).jobs == 1


async def test_queues_are_woken_once_each(store, connection, leader):
    heard = []
    await connection.add_listener("rxjobs", lambda *notified: heard.append(notified[3]))
    for queue in ("a", "b", "a"):
        await a_row(connection, state="scheduled", queue=queue)
    await store.stage_jobs(100, *leader)
    await connection.execute("SELECT pg_notify('rxjobs', 'end')")
    assert sorted(heard) == ["a", "b", "end"]


async def test_two_that_stage_at_once_never_wait_for_each_other(store, connection, ground, leader):
    for _ in range(10):
        await a_row(connection, state="scheduled")
    other = await asyncpg.connect(ground)
    async with other.transaction():
        assert (await other.fetchrow(statement("stage_jobs", "rxjobs"), 4, None, *leader, LONG_AGO))["staged"] == 4
        staged = await asyncio.wait_for(store.stage_jobs(100, *leader), 5)
        assert staged.jobs == 6
    await other.close()
