"""A wish to cancel, written into the row of a job that runs, holds whatever becomes of the run."""

import asyncio
import json

import asyncpg
import pytest

from rxjobs.failure import Failure
from rxjobs.job import Job
from rxjobs.outcome import Cancel, Complete, Discard, Finished, Release, Retry, Snooze
from rxjobs.store.encoding import Written
from tests.store.ground import CLAIMED_AT, a_claimed_row, a_row, rescue_some, the_row
from tests.waiting import until

FAILURE = Failure("ValueError", "bad", "Traceback …", 0.25)


def written(id_, outcome, attempt=1):
    return Written.of([Finished(Job(id=id_, type="work", attempt=attempt, attempted_at=CLAIMED_AT), outcome)], "node-a")


def types(row):
    return [error["type"] for error in json.loads(row["errors"])]


@pytest.mark.parametrize(
    ("outcome", "state", "errors"),
    [
        (Complete(), "completed", []),
        (Cancel("why"), "cancelled", ["rxjobs.Cancel"]),
        (Discard("bad", FAILURE), "discarded", ["ValueError"]),
        (Retry(60.0, "bad", FAILURE), "cancelled", ["ValueError", "rxjobs.Cancel"]),
        (Retry(0.0, "bad", FAILURE), "cancelled", ["ValueError", "rxjobs.Cancel"]),
        (Snooze(60), "cancelled", ["rxjobs.Cancel"]),
        (Release(), "cancelled", ["rxjobs.Cancel"]),
    ],
    ids=lambda given: type(given).__name__,
)
async def test_a_marked_job_does_not_go_on(store, connection, node, outcome, state, errors):
    id_ = await a_claimed_row(connection, node)
    assert await store.cancel_jobs([id_]) == {id_}
    assert (await the_row(connection, id_))["state"] == "executing"
    assert await store.ack_jobs(node, written(id_, outcome)) == {id_}
    row = await the_row(connection, id_)
    assert (row["state"], row["attempt"], types(row)) == (state, 1, errors)


async def test_a_node_sees_which_of_its_own_jobs_are_to_be_cancelled(store, connection, node):
    ids = [await a_claimed_row(connection, node, attempt=3) for _ in range(3)]
    waiting = await a_row(connection)
    assert (await store.look([], [], node=node)).cancelling == frozenset()
    assert await store.cancel_jobs([*ids[:2], waiting, 10**9]) == {*ids[:2], waiting}
    assert await store.cancel_jobs(ids[:1]) == {ids[0]}
    assert (await store.look([], [], node=node)).cancelling == {(ids[0], 3), (ids[1], 3)}
    assert (await store.look([], [])).cancelling == frozenset()


async def test_it_is_told_of_only_where_something_runs(store, connection, node, ground):
    heard: list[object] = []
    listener = await asyncpg.connect(ground)
    await listener.add_listener("rxjobs", lambda *said: heard.append(said[-1]))
    waiting, running = await a_row(connection), await a_claimed_row(connection, node)
    await store.cancel_jobs([waiting])
    await store.notify_queues(["after"])
    await store.cancel_jobs([running])
    await until(lambda: "!" in heard)
    assert heard == ["after", "!"]
    await listener.close()


async def test_a_marked_job_of_a_dead_node_is_cancelled_and_not_rescued(store, connection, node, leader):
    ids = [await a_claimed_row(connection, node) for _ in range(2)]
    await store.cancel_jobs(ids[:1])
    await connection.execute("UPDATE rxjobs.nodes SET expires_at = now() - interval '1 hour' WHERE id = $1", node)
    assert await rescue_some(store, node, 10, *leader) == set(ids)
    cancelled, rescued = [await the_row(connection, id_) for id_ in ids]
    assert (cancelled["state"], types(cancelled)) == ("cancelled", ["rxjobs.NodeLost", "rxjobs.Cancel"])
    assert (rescued["state"], types(rescued)) == ("available", ["rxjobs.NodeLost"])


async def test_a_marked_job_whose_claim_was_lost_is_cancelled(store, connection, node):
    ids = [await a_claimed_row(connection, node) for _ in range(2)]
    await store.cancel_jobs(ids[:1])
    now = await connection.fetchval("SELECT now()")
    found, _ = await store.lost_claims(node, [], now)
    assert found == set(ids)
    assert [(await the_row(connection, id_))["state"] for id_ in ids] == ["cancelled", "available"]


async def test_a_job_that_is_begun_in_that_very_moment_is_marked(store, connection, node, ground):
    """Neither as one that waits nor as one that runs must it be missed."""
    id_ = await a_row(connection)
    claiming = await asyncpg.connect(ground)
    async with claiming.transaction():
        await claiming.execute("UPDATE rxjobs.live_jobs SET state = 'executing', node = $2, attempt = 1 WHERE id = $1", id_, node)
        cancelling = asyncio.ensure_future(store.cancel_jobs([id_]))
        await until(lambda: connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))
    assert await cancelling == {id_}
    assert await connection.fetchval("SELECT cancel_at IS NOT NULL AND state = 'executing' FROM rxjobs.live_jobs")
    await claiming.close()


async def test_a_job_that_goes_back_in_that_very_moment_is_cancelled(store, connection, node, ground):
    id_ = await a_claimed_row(connection, node)
    acking = await asyncpg.connect(ground)
    async with acking.transaction():
        await acking.execute("UPDATE rxjobs.live_jobs SET state = 'retryable' WHERE id = $1", id_)
        cancelling = asyncio.ensure_future(store.cancel_jobs([id_]))
        await until(lambda: connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))
    assert await cancelling == {id_}
    assert (await the_row(connection, id_))["state"] == "cancelled"
    await acking.close()


async def test_progress_is_written_for_the_current_claim_alone(store, connection, node):
    id_ = await a_claimed_row(connection, node, attempt=2)
    said = '{"message": "half", "fraction": 0.5}'
    for attempt, at in [(1, CLAIMED_AT), (2, None)]:
        assert await store.save_progress(node, [id_], [attempt], [at], [said]) == (set(), set())
    assert await store.save_progress(node, [id_], [2], [CLAIMED_AT], [said]) == ({id_}, set())
    assert await store.read_progress(id_) == (said, False)
    await store.ack_completed([id_], node, 2)
    assert await store.read_progress(id_) == (said, True)
    assert await store.read_progress(10**9) == (None, True)
