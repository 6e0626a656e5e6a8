import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg

from rxjobs.awaiting import every
from rxjobs.services.stage import BATCH, SETTLED, Beginning, stage
from rxjobs.sources.looks import Seen
from rxjobs.store.store import LONG_AGO, Staged
from tests.store.ground import a_row, states
from tests.waiting import until


def looks_at(store, poll_seconds, beginnings=None):
    """What a node with nothing but this service sees; `beginnings` takes from when on it looked."""

    def looks(since):
        async def look():
            begun = since()
            if beginnings is not None:
                beginnings.append(begun)
            return Seen(await store.look([], [], since=begun), (), begun, frozenset())

        return every(lambda: poll_seconds, look)

    return looks


async def test_what_waits_is_staged_when_it_is_due_and_not_at_the_next_poll(connection, store, scheduler, leadership):
    await a_row(connection, state="scheduled")
    await connection.execute("UPDATE rxjobs.live_jobs SET scheduled_at = now() + interval '0.4 seconds'")
    staged = asyncio.Queue()
    watching = stage(store, leadership, looks_at(store, 600), poll_seconds=600).subscribe(staged.put_nowait, scheduler=scheduler)
    async with asyncio.timeout(60):
        while await staged.get() == 0:
            pass
    watching.dispose()
    early = await connection.fetchval("SELECT scheduled_at > now() FROM rxjobs.live_jobs WHERE state = 'available'")
    assert early is False


async def test_more_than_one_batch_is_staged_without_a_pause(connection, store, scheduler, leadership):
    await connection.execute("INSERT INTO rxjobs.live_jobs (type, state) SELECT 'work', 'retryable' FROM generate_series(1, 2500)")
    staged = asyncio.Queue()
    watching = stage(store, leadership, looks_at(store, 600), poll_seconds=600).subscribe(staged.put_nowait, scheduler=scheduler)
    async with asyncio.timeout(60):
        assert [await staged.get() for _ in range(3)] == [1000, 1000, 500]
    watching.dispose()


async def test_what_is_committed_late_is_staged_all_the_same_though_looks_begin_later(
    connection, store, scheduler, leadership, dsn
):
    """Its instant is long over when it can be seen, and behind it lie the entries of many that were staged."""
    pinned = await asyncpg.connect(dsn)
    await pinned.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1")
    await connection.execute(
        """
        INSERT INTO rxjobs.live_jobs (type, state, scheduled_at)
        SELECT 'work', 'retryable', now() - interval '1 hour' FROM generate_series(1, 100000);
        DELETE FROM rxjobs.live_jobs
        """
    )
    staged, beginnings = asyncio.Queue(), []
    looks = looks_at(store, 0.05, beginnings)
    watching = stage(store, leadership, looks, poll_seconds=0.05).subscribe(staged.put_nowait, scheduler=scheduler)
    await until(lambda: any(begun != LONG_AGO for begun in beginnings))
    late = await a_row(connection, state="scheduled", scheduled_at=datetime.now(UTC) - timedelta(minutes=30))
    async with asyncio.timeout(60):
        while await staged.get() == 0:
            pass
    watching.dispose()
    await pinned.close()
    assert await states(connection, [late]) == ["available"]


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_looks_begin_at_the_start_unless_that_takes_long_and_then_every_second():
    clock = [100.0]
    beginning = Beginning(lambda: clock[0])
    for seconds in (0.001, 0.001):
        assert beginning.of_a_look(1) == LONG_AGO
        beginning.looked(LONG_AGO, Staged(3, None, NOW, seconds))
    assert beginning.of_a_look(1) == LONG_AGO
    beginning.looked(LONG_AGO, Staged(3, None, NOW, 0.02))
    assert beginning.of_a_look(1) == NOW - SETTLED
    beginning.looked(NOW - SETTLED, Staged(0, None, NOW + timedelta(seconds=1), 0.0001))
    assert beginning.of_a_look(1) == NOW - SETTLED + timedelta(seconds=1)
    clock[0] += 1.0
    assert beginning.of_a_look(1) == LONG_AGO
    beginning.looked(LONG_AGO, Staged(0, None, NOW, 2.0))  # no more than a fifth of a connection's time
    clock[0] += 7.9
    assert beginning.of_a_look(1) != LONG_AGO
    clock[0] += 0.1
    assert beginning.of_a_look(1) == LONG_AGO


def test_to_find_many_is_no_crowd_unless_it_takes_longer_than_many_do():
    """While a storm of retries is staged, each batch is full, and behind it lie the entries of all before."""
    beginning = Beginning(lambda: 100.0)
    beginning.of_a_look(1)
    beginning.looked(LONG_AGO, Staged(BATCH, None, NOW, 0.02))
    assert beginning.of_a_look(1) == LONG_AGO
    beginning.looked(LONG_AGO, Staged(BATCH, None, NOW, 0.05))
    assert beginning.of_a_look(1) == NOW - SETTLED


def test_a_new_term_begins_at_the_start():
    beginning = Beginning(lambda: 100.0)
    beginning.of_a_look(1)
    beginning.looked(LONG_AGO, Staged(0, None, NOW, 0.05))
    assert beginning.of_a_look(1) == NOW - SETTLED
    assert beginning.of_a_look(2) == LONG_AGO
