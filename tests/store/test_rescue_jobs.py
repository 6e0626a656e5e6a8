import asyncio
import json
from uuid import uuid4

import asyncpg
import pytest

from rxjobs.job import Job
from rxjobs.outcome import Complete, Finished, Release
from rxjobs.store.encoding import Written
from tests.store.ground import CLAIMED_AT, FAILS_TWICE, a_claimed_row, a_leader, a_node, a_row, rescue_some, states, the_row
from tests.waiting import until


async def test_a_job_is_available_at_once_the_first_time_and_after_a_backoff_the_second(store, connection, leader):
    id_ = await a_row(connection, max_attempts=5)
    for expected in ("available", "retryable"):
        node = await a_node(connection, seconds=-1)
        await connection.execute(
            "UPDATE rxjobs.live_jobs SET state = 'executing', node = $1, attempt = attempt + 1, attempted_at = now()", node
        )
        assert await rescue_some(store, node, 10, *leader, delay=100.0) == {id_}
        row = await the_row(connection, id_)
        assert (row["state"], row["node"]) == (expected, None)
    wait = await connection.fetchval("SELECT extract(epoch FROM scheduled_at - now()) FROM rxjobs.live_jobs")
    assert 90 < wait <= 100
    first, second = json.loads(row["errors"])
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert first.keys() == {"attempt", "type", "message", "traceback", "node", "at", "duration", "trace_id"}


async def test_the_last_attempt_is_a_dead_letter_that_says_why(store, connection, leader):
    node = await a_node(connection, seconds=-1)
    id_ = await a_claimed_row(connection, node, attempt=3, max_attempts=3, errors='[{"attempt": 2, "type": "ValueError"}]')
    assert await rescue_some(store, node, 10, *leader) == {id_}
    row = await the_row(connection, id_)
    assert (row["state"], row["attempt"]) == ("discarded", 3)
    assert row["finished_at"] is not None
    assert [error["type"] for error in json.loads(row["errors"])] == ["ValueError", "rxjobs.NodeLost"]


async def test_nothing_is_taken_from_a_living_node(store, connection, leader):
    alive, dead = await a_node(connection), await a_node(connection, seconds=-1)
    its, lost = await a_claimed_row(connection, alive), await a_claimed_row(connection, dead)
    assert [found[0] for found in await store.expired_nodes(0.0)] == [dead]
    assert await rescue_some(store, alive, 10, *leader) == set()  # it may have renewed since it was found dead
    assert await rescue_some(store, dead, 10, *leader) == {lost}
    assert await states(connection, [its, lost]) == ["executing", "available"]


async def test_a_renewal_on_the_way_saves_a_nodes_jobs(store, connection, ground, leader):
    node = await a_node(connection, seconds=-1)
    its = await a_claimed_row(connection, node)
    renewing = await asyncpg.connect(ground)
    transaction = renewing.transaction()
    await transaction.start()
    await renewing.execute("UPDATE rxjobs.nodes SET expires_at = now() + interval '1 minute' WHERE id = $1", node)
    rescuing = asyncio.ensure_future(rescue_some(store, node, 10, *leader))
    while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"):
        if rescuing.done():
            break
        await asyncio.sleep(0.01)
    await transaction.commit()
    await renewing.close()
    assert await rescuing == set()
    assert await states(connection, [its]) == ["executing"]


async def test_a_node_that_lost_jobs_is_told_so_when_it_renews(store, connection, leader):
    node = await a_node(connection, seconds=-1)
    ids = [await a_claimed_row(connection, node) for _ in range(3)]
    assert await store.renew_lease(node, 60)  # late, but nobody has taken anything
    await connection.execute("UPDATE rxjobs.nodes SET expires_at = now() - interval '1 second'")
    assert len(await rescue_some(store, node, 2, *leader)) == 2
    assert not await store.renew_lease(node, 60)
    await store.take_lease(node, "", 1, 60)
    assert await store.renew_lease(node, 60)
    assert await rescue_some(store, node, 2, *leader) == set()  # what is left is its own again
    assert sorted(await states(connection, ids)) == ["available", "available", "executing"]


async def test_the_dead_nodes_late_acks_change_nothing_and_are_known_for_stale(store, connection, leader):
    node = await a_node(connection, seconds=-1)
    ids = [await a_claimed_row(connection, node) for _ in range(2)]
    await rescue_some(store, node, 10, *leader)
    late = [Job(id=id_, type="work", attempt=1, attempted_at=CLAIMED_AT) for id_ in ids]
    ended = [Finished(late[0], Complete()), Finished(late[1], Release())]
    assert await store.ack_jobs(node, Written.of(ended, "")) == set()
    assert await store.ack_completed(ids, node, 1) == set()
    assert await store.find_acked(node, ids, [1, 1], [CLAIMED_AT] * 2) == set()
    assert await states(connection, ids) == ["available", "available"]


async def test_rescue_goes_batch_by_batch_until_nothing_is_left(store, connection, leader):
    node = await a_node(connection, seconds=-1)
    for _ in range(5):
        await a_claimed_row(connection, node)
    await a_claimed_row(connection, uuid4())
    assert [len(await rescue_some(store, node, 2, *leader)) for _ in range(4)] == [2, 2, 1, 0]


async def test_nobody_is_dead_until_the_server_has_been_up_for_a_lease(store, connection):
    await a_node(connection, seconds=-1)
    up = await connection.fetchval("SELECT extract(epoch FROM now() - pg_postmaster_start_time())::float8")
    assert await store.expired_nodes(up + 60) == []
    assert len(await store.expired_nodes(min(30.0, up / 2))) == 1


async def test_nobody_is_dead_until_there_has_been_a_leader_for_a_lease(store, connection):
    """A standby that took over late: it has been up all the time, and nobody could renew on it."""
    new, dead = await a_node(connection), await a_node(connection, seconds=-1)
    await a_leader(connection, seconds=-60.0)
    assert await store.lead(new, 30.0) == 2
    assert await store.expired_nodes(60.0) == []
    await until(lambda: store.expired_nodes(0.1))
    assert [found[0] for found in await store.expired_nodes(0.1)] == [dead]


async def test_a_change_of_leaders_puts_no_rescue_off(store, connection):
    """One that died, another that resigned, and one that was a moment late itself."""
    first, second, third = [await a_node(connection) for _ in range(3)]
    dead = await a_node(connection, seconds=-1)
    await a_leader(connection, node=first, seconds=-5.0)  # the others ask three times in the 30 s that it had
    assert await store.lead(second, 30.0) == 2
    await store.resign(second)
    assert await store.lead(third, 30.0) == 3
    await a_leader(connection, node=third, term=3, seconds=-5.0)
    assert await store.lead(third, 30.0) == 4
    assert [found[0] for found in await store.expired_nodes(0.01)] == [dead]


async def test_a_rescue_that_runs_into_a_serialization_failure_loses_no_row(store, connection, leader):
    """As oban#1030 (row 6): the statement fails as a whole, so that it can be done again."""
    node = await a_node(connection, seconds=-1)
    ids = [await a_claimed_row(connection, node) for _ in range(50)]
    await connection.execute(FAILS_TWICE)
    try:
        for _ in range(2):
            with pytest.raises(asyncpg.SerializationError):
                await rescue_some(store, node, 10, *leader)
            assert await states(connection, ids) == ["executing"] * 50
        assert [len(await rescue_some(store, node, 20, *leader)) for _ in range(4)] == [20, 20, 10, 0]
    finally:
        await connection.execute("DROP FUNCTION rxjobs.fail_twice CASCADE; DROP SEQUENCE rxjobs.failures")
    assert await states(connection, ids) == ["available"] * 50


async def test_a_node_leaves_unless_jobs_are_still_claimed_by_it(store, connection, node):
    id_ = await a_claimed_row(connection, node)
    await store.leave(node)
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.nodes") == 1
    await store.ack_completed([id_], node, 1)
    await store.leave(node)
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.nodes") == 0


async def test_rescued_jobs_wake_their_queues(store, connection, leader):
    heard = []
    await connection.add_listener("rxjobs", lambda *notified: heard.append(notified[3]))
    node = await a_node(connection, seconds=-1)
    await a_claimed_row(connection, node, queue="first")
    await a_claimed_row(connection, node, queue="last", attempt=1, max_attempts=1)
    await rescue_some(store, node, 10, *leader)
    await connection.execute("SELECT pg_notify('rxjobs', 'end')")
    assert heard == ["first", "end"]


async def test_a_dead_node_is_removed_once_nothing_is_claimed_by_it_and_a_living_one_never(store, connection, node, leader):
    dead = await a_node(connection, seconds=-1)
    await a_claimed_row(connection, dead)
    await store.bury(dead)
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.nodes") == 2
    await rescue_some(store, dead, 10, *leader)
    for one in (dead, node):
        await store.bury(one)
    assert [row["id"] for row in await connection.fetch("SELECT id FROM rxjobs.nodes")] == [node]
