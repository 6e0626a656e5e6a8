import asyncio
from uuid import uuid4

import asyncpg
import pytest

from tests.store.ground import CLAIMED_AT, a_claimed_row, a_row, states, the_row


async def test_claims_that_the_node_does_not_hold_are_given_back_once_they_are_older_than_the_last_look(store, connection, node):
    held, lost, young = [await a_claimed_row(connection, node, attempt=3) for _ in range(3)]
    elsewhere = await a_claimed_row(connection, uuid4(), attempt=3)
    waiting = await a_row(connection, node=node, attempt=3, attempted_at=CLAIMED_AT)
    _, now = await store.lost_claims(node, {held}, None)
    await connection.execute("UPDATE rxjobs.live_jobs SET attempted_at = now() WHERE id = $1", young)
    assert (await store.lost_claims(node, {held}, now))[0] == {lost}
    assert await states(connection, [held, lost, young, elsewhere, waiting]) == [
        "executing", "available", "executing", "executing", "available",
    ]  # fmt: skip
    row = await the_row(connection, lost)
    assert (row["attempt"], row["node"], row["errors"]) == (2, None, "[]")


async def test_what_is_given_back_wakes_its_queue(store, connection, node):
    heard = []
    await connection.add_listener("rxjobs", lambda *notified: heard.append(notified[3]))
    await a_claimed_row(connection, node, queue="mail")
    _, now = await store.lost_claims(node, set(), None)
    await store.lost_claims(node, set(), now)
    await connection.execute("SELECT pg_notify('rxjobs', 'end')")
    assert heard == ["mail", "end"]


async def test_an_answer_that_was_lost_is_counted_and_one_that_came_is_not(store, connection, node):
    await a_row(connection)
    await store.fetch_jobs("default", 1, ["work"], node)
    assert store.lost_answers == 0
    with pytest.raises(asyncpg.PostgresError):
        await store.fetch_jobs("default", -1, ["work"], node)
    assert store.lost_answers == 1
    with pytest.raises(asyncio.CancelledError), store.claiming():
        raise asyncio.CancelledError
    assert store.lost_answers == 2
