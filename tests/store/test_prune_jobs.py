from tests.store.ground import a_claimed_row, a_row


async def test_finished_rows_older_than_keep_go_a_batch_at_a_time(store, connection, node, leader):
    ids = [await a_claimed_row(connection, node) for _ in range(6)]
    await store.ack_completed(ids, node, 1)
    live = await a_row(connection)
    await connection.execute("UPDATE rxjobs.finished_jobs SET finished_at = now() - interval '2 hours' WHERE id <> $1", ids[5])
    assert [await store.prune_jobs(3600.0, 3, *leader) for _ in range(3)] == [3, 2, 0]
    left = await connection.fetch("SELECT id FROM rxjobs.jobs ORDER BY id")
    assert [row["id"] for row in left] == [ids[5], live]
