import asyncio

from rxjobs.services.prune import prune
from rxjobs.testing import fill


async def test_old_rows_go_in_batches_with_hardly_a_pause_and_young_ones_stay(connection, store, scheduler, leadership):
    await fill(connection, "work", 2_500, state="completed")
    await connection.execute("UPDATE rxjobs.finished_jobs SET finished_at = now() - interval '2 days'")
    await fill(connection, "work", 10, state="completed")
    pruned = asyncio.Queue()
    watching = prune(store, leadership, keep=86400.0).subscribe(pruned.put_nowait, scheduler=scheduler)
    async with asyncio.timeout(10):
        assert [await pruned.get() for _ in range(3)] == [1000, 1000, 500]
    watching.dispose()
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.finished_jobs") == 10
