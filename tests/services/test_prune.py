import asyncio

import pytest

import rxjobs.services.prune as service
from rxjobs.services.prune import prune
from rxjobs.testing import fill


async def test_old_rows_go_in_batches_with_hardly_a_pause_and_young_ones_stay(connection, store, scheduler, leadership):
    await fill(connection, "work", 2_500, state="completed")
    await connection.execute("UPDATE rxjobs.finished_jobs SET finished_at = now() - interval '2 days'")
    await fill(connection, "work", 10, state="completed")
    pruned = asyncio.Queue()
    watching = prune(store, leadership, keep=86400.0).subscribe(pruned.put_nowait, scheduler=scheduler)
    async with asyncio.timeout(60):
        assert [await pruned.get() for _ in range(3)] == [1000, 1000, 500]
    watching.dispose()
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.finished_jobs") == 10


@pytest.mark.parametrize(("keep_discarded", "left"), [(3 * 86400.0, 5), (3600.0, 0)])
async def test_dead_letters_are_kept_for_a_time_of_their_own(connection, store, scheduler, leadership, keep_discarded, left):
    await fill(connection, "work", 5, state="discarded")
    await fill(connection, "work", 5, state="completed")
    await connection.execute("UPDATE rxjobs.finished_jobs SET finished_at = now() - interval '25 hours'")
    pruned = asyncio.Queue()
    watching = prune(store, leadership, keep=86400.0, keep_discarded=keep_discarded).subscribe(
        pruned.put_nowait, scheduler=scheduler
    )
    async with asyncio.timeout(60):
        assert await pruned.get() == 10 - left
    watching.dispose()
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.finished_jobs WHERE state = 'discarded'") == left


async def test_what_ended_since_the_last_look_goes_and_what_was_written_down_late_too(
    connection, store, scheduler, leadership, monkeypatch
):
    """Only now and then is all read again: an instant is that at which a transaction began, which may have been long ago."""
    monkeypatch.setattr(service, "EVERY_SECONDS", 0.01)
    monkeypatch.setattr(service, "ANEW", 5)
    pruned = asyncio.Queue()
    watching = prune(store, leadership, keep=3600.0).subscribe(pruned.put_nowait, scheduler=scheduler)
    async with asyncio.timeout(10):
        for seconds in (3601, 86400):
            assert await pruned.get() == 0
            await fill(connection, "work", 3, state="completed")
            await connection.execute("UPDATE rxjobs.finished_jobs SET finished_at = now() - $1 * interval '1 second'", seconds)
            while await pruned.get() != 3:
                pass
    watching.dispose()
