import asyncio

import asyncpg

from rxjobs.store.statements import statement
from tests.store.ground import a_claimed_row, a_row


async def test_finished_rows_older_than_keep_go_a_batch_at_a_time(store, connection, node, leader):
    ids = [await a_claimed_row(connection, node) for _ in range(6)]
    await store.ack_completed(ids, node, 1)
    live = await a_row(connection)
    await connection.execute("UPDATE rxjobs.finished_jobs SET finished_at = now() - interval '2 hours' WHERE id <> $1", ids[5])
    assert [(await store.prune_jobs(3600.0, 3, *leader)).states.total() for _ in range(3)] == [3, 2, 0]
    left = await connection.fetch("SELECT id FROM rxjobs.jobs ORDER BY id")
    assert [row["id"] for row in left] == [ids[5], live]


async def test_pruning_holds_up_neither_claims_nor_outcomes_nor_another_who_prunes(store, connection, node, ground, leader):
    """As pg-boss#323 (row 44): a batch that does not come to its end, on a slow disk, is waited for by nobody."""
    ids = [await a_claimed_row(connection, node) for _ in range(10)]
    await store.ack_completed(ids, node, 1)
    await connection.execute("UPDATE rxjobs.finished_jobs SET finished_at = now() - interval '2 hours'")
    slow = await asyncpg.connect(ground)
    async with slow.transaction():
        assert (await slow.fetchrow(statement("prune_jobs", "rxjobs"), 3600.0, 4, *leader, 3600.0, None))["count"] == 4
        async with asyncio.timeout(60):
            assert (await store.prune_jobs(3600.0, 100, *leader)).states.total() == 6
            await a_row(connection)
            (claimed,) = await store.fetch_jobs("default", 1, ["work"], node)
            assert await store.ack_completed([claimed["id"]], node, 1)
    await slow.close()
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.finished_jobs") == 1
