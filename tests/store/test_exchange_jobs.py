import pytest

from rxjobs.store.store import FROM_THE_START, LONG_AGO, PRIORITIES
from tests.store.ground import a_claimed_row, a_row, states

MARKS = (LONG_AGO,) * PRIORITIES, (0,) * PRIORITIES
"""As FROM_THE_START, of the statement that goes by marks."""
BY = pytest.mark.parametrize("marks", [FROM_THE_START, MARKS], ids=["from the start", "from marks"])


@BY
async def test_the_ones_are_completed_and_the_others_claimed(store, connection, node, marks):
    done = [await a_claimed_row(connection, node, attempt=2) for _ in range(3)]
    ready = [await a_row(connection, priority=priority) for priority in (5, 5, 1)]
    written, rows = await store.exchange_jobs("default", 2, ["work"], node, done, 2, marks)
    assert written == 3
    assert [row["id"] for row in sorted(rows, key=lambda row: row["priority"])] == [ready[2], ready[0]]
    assert await states(connection, done + ready) == ["completed"] * 3 + ["executing", "available", "executing"]


@BY
async def test_where_there_is_nothing_to_claim_that_is_what_comes(store, connection, node, marks):
    done = [await a_claimed_row(connection, node) for _ in range(3)]
    assert await store.exchange_jobs("default", 2, ["work"], node, done, 1, marks) == (3, [])
    assert await states(connection, done) == ["completed"] * 3


@BY
async def test_what_is_not_claimed_for_this_attempt_by_this_node_is_not_counted(store, connection, node, marks):
    mine, older = await a_claimed_row(connection, node, attempt=2), await a_claimed_row(connection, node, attempt=1)
    other = await a_claimed_row(connection, None, attempt=2)
    ready = await a_row(connection)
    written, rows = await store.exchange_jobs("default", 1, ["work"], node, [mine, older, other, 0], 2, marks)
    assert (written, [row["id"] for row in rows]) == (1, [ready])
    assert await states(connection, [mine, older, other]) == ["completed", "executing", "executing"]


@BY
@pytest.mark.parametrize(
    "hindrance",
    [
        "INSERT INTO rxjobs.queues (queue, node, paused_at) VALUES ('default', '', now())",
        "UPDATE rxjobs.nodes SET expires_at = now()",
        "INSERT INTO rxjobs.queues (queue, node, pace) VALUES ('default', '', 0.1)",
    ],
    ids=["its queue is paused", "its lease is over", "its queue is limited"],
)
async def test_outcomes_are_written_though_nothing_is_to_be_claimed(store, connection, node, hindrance, marks):
    done, ready = await a_claimed_row(connection, node), await a_row(connection)
    await connection.execute(hindrance)
    assert await store.exchange_jobs("default", 1, ["work"], node, [done], 1, marks) == (1, [])
    assert await states(connection, [done, ready]) == ["completed", "available"]


async def test_a_claim_that_is_narrowed_is_narrowed_here_too(store, connection, node):
    done = await a_claimed_row(connection, node)
    rows = [
        await a_row(connection, args=args, tags=tags) for args, tags in [('{"n": 1}', ["a"]), ('{"n": 2}', ["a"]), ('{"n": 1}', [])]
    ]
    written, claimed = await store.exchange_jobs_where("default", 9, ["work"], node, ["a"], '{"n": 1}', [done], 1)
    assert (written, [row["id"] for row in claimed]) == (1, rows[:1])
