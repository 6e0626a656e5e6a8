import asyncio

import asyncpg
import pytest

from rxjobs.store.node_statements import BEFORE_ALL
from rxjobs.store.statements import statement
from tests.store.ground import a_leader, a_node, a_row

WAITED = "UPDATE rxjobs.live_jobs SET scheduled_at = now() - interval '1 hour' + id * interval '1 second'"


async def a_round(store, leader, limit=1000, seconds=60.0):
    """What is raised of each place, as the service does it."""
    raised, after = {}, BEFORE_ALL
    while (found := await store.age_jobs(after, limit, seconds, *leader)) is not None:
        after, jobs = found
        raised[after] = jobs
    return raised


async def priorities(connection, ids):
    found = dict(await connection.fetch("SELECT id, priority FROM rxjobs.live_jobs"))
    return [found[id_] for id_ in ids]


async def test_who_waits_rises_by_one_step_a_round_until_it_is_most_urgent(store, connection, leader):
    ids = [await a_row(connection, queue=queue, priority=priority) for queue in ("a", "b") for priority in (0, 1, 2, 9)]
    await connection.execute(WAITED)
    assert await a_round(store, leader) == {
        (queue, priority): int(priority > 0) for queue in ("a", "b") for priority in (0, 1, 2, 9)
    }
    assert await priorities(connection, ids) == [0, 0, 1, 8] * 2
    await a_round(store, leader)
    assert await priorities(connection, ids) == [0, 0, 0, 7] * 2
    for _ in range(8):
        await a_round(store, leader)
    assert await priorities(connection, ids) == [0] * 8


async def test_only_what_is_ready_and_has_been_for_so_long_rises(store, connection, leader):
    old = [await a_row(connection, priority=5, state=state) for state in ("available", "scheduled", "retryable", "held")]
    await connection.execute(WAITED)
    young = await a_row(connection, priority=5)
    assert await a_round(store, leader) == {("default", 5): 1}
    assert await priorities(connection, [*old, young]) == [4, 5, 5, 5, 5]


async def test_the_oldest_rise_up_to_the_limit(store, connection, leader):
    ids = [await a_row(connection, priority=3) for _ in range(5)]
    await connection.execute(WAITED)
    assert await a_round(store, leader, limit=2) == {("default", 3): 2}
    assert await priorities(connection, ids) == [2, 2, 3, 3, 3]


@pytest.mark.parametrize("rounds", [0, 2])
async def test_a_job_of_low_priority_is_claimed_before_urgent_ones_that_came_later_once_it_has_risen(
    store, connection, leader, rounds
):
    """Without ageing it never is, however long there is something more urgent."""
    node = await a_node(connection)
    low = await a_row(connection, priority=2)
    await connection.execute(WAITED)
    for _ in range(rounds):
        await a_round(store, leader)
    for _ in range(20):
        await a_row(connection), await a_row(connection)
        (claimed,) = await store.fetch_jobs("default", 1, ["work"], node)
        if claimed["id"] == low:
            break
    assert (claimed["id"] == low) == (rounds == 2)


async def test_rows_that_others_have_locked_are_passed_by_and_it_waits_for_none(store, connection, ground, leader):
    node = await a_node(connection)
    ids = [await a_row(connection, priority=1) for _ in range(5)]
    await connection.execute(WAITED)
    other = await asyncpg.connect(ground)
    async with other.transaction():
        claim = statement("fetch_jobs", "rxjobs"), "default", 2, ["work"], node, 4096
        assert sorted(row["id"] for row in await other.fetch(*claim)) == ids[:2]
        assert await asyncio.wait_for(a_round(store, leader), 5) == {("default", 1): 3}
    await other.close()
    assert await priorities(connection, ids) == [1, 1, 0, 0, 0]


async def test_queues_in_which_jobs_rose_are_woken(store, connection, leader):
    heard = []
    await connection.add_listener("rxjobs", lambda *notified: heard.append(notified[3]))
    for queue, priority in ("a", 1), ("a", 1), ("b", 0):
        await a_row(connection, queue=queue, priority=priority)
    await connection.execute(WAITED)
    await a_round(store, leader)
    await connection.execute("SELECT pg_notify('rxjobs', 'end')")
    assert heard == ["a", "end"]


async def test_who_leads_no_longer_raises_nothing(store, connection, leader):
    id_ = await a_row(connection, priority=4)
    await connection.execute(WAITED)
    await a_leader(connection, node=await a_node(connection), term=leader[1] + 1)
    assert await a_round(store, leader) == {}
    await a_leader(connection, node=leader[0], term=leader[1] + 1)  # the same node, which did not lead for a while
    assert await a_round(store, leader) == {}
    over = await a_leader(connection, term=leader[1] + 2, seconds=-1)
    assert await a_round(store, over) == {}
    assert await priorities(connection, [id_]) == [4]
