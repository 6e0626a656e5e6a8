import asyncio

import asyncpg

from rxjobs.store.statements import statement
from tests.store.ground import a_row, states

NOW = "UPDATE rxjobs.live_jobs SET scheduled_at = now() + $2::float8 * interval '1 second' WHERE id = $1"


async def test_what_is_due_becomes_available_and_the_rest_says_when(store, connection, leader):
    due, later, held = [await a_row(connection, state=state) for state in ("scheduled", "retryable", "held")]
    await connection.execute(NOW, due, -1.0)
    await connection.execute(NOW, later, 30.0)
    staged, seconds = await store.stage_jobs(100, *leader)
    assert staged == 1
    assert seconds is not None
    assert 29 < seconds <= 30
    assert await states(connection, [due, later, held]) == ["available", "retryable", "held"]


async def test_with_nothing_waiting_there_is_no_next(store, leader):
    assert await store.stage_jobs(100, *leader) == (0, None)


async def test_the_longest_due_are_staged_first_up_to_the_limit(store, connection, leader):
    ids = [await a_row(connection, state="scheduled") for _ in range(5)]
    for place, id_ in enumerate(ids):
        await connection.execute(NOW, id_, -10.0 + place)
    assert (await store.stage_jobs(2, *leader))[0] == 2
    assert await states(connection, ids) == ["available", "available", "scheduled", "scheduled", "scheduled"]


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
        assert (await other.fetchrow(statement("stage_jobs", "rxjobs"), 4, None, *leader))["staged"] == 4
        staged, _ = await asyncio.wait_for(store.stage_jobs(100, *leader), 5)
        assert staged == 6
    await other.close()
