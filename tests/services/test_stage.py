import asyncio

from rxjobs.services.stage import stage
from tests.store.ground import a_row


async def test_what_waits_is_staged_when_it_is_due_and_not_at_the_next_poll(connection, store, scheduler, leadership):
    await a_row(connection, state="scheduled")
    await connection.execute("UPDATE rxjobs.live_jobs SET scheduled_at = now() + interval '0.4 seconds'")
    staged = asyncio.Queue()
    watching = stage(store, leadership, poll_seconds=600).subscribe(staged.put_nowait, scheduler=scheduler)
    async with asyncio.timeout(5):
        while await staged.get() == 0:
            pass
    watching.dispose()
    early = await connection.fetchval("SELECT scheduled_at > now() FROM rxjobs.live_jobs WHERE state = 'available'")
    assert early is False


async def test_more_than_one_batch_is_staged_without_a_pause(connection, store, scheduler, leadership):
    await connection.execute("INSERT INTO rxjobs.live_jobs (type, state) SELECT 'work', 'retryable' FROM generate_series(1, 2500)")
    staged = asyncio.Queue()
    watching = stage(store, leadership, poll_seconds=600).subscribe(staged.put_nowait, scheduler=scheduler)
    async with asyncio.timeout(10):
        assert [await staged.get() for _ in range(3)] == [1000, 1000, 500]
    watching.dispose()
