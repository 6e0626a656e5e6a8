"""A server whose room for notifications is taken: nothing fails for it, it is said once, and they come back by themselves."""

from __future__ import annotations

import asyncio
import logging

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.events import NotificationsFull, NotificationsResumed
from rxjobs.services.lead import Leadership
from rxjobs.services.room import room
from tests.servers import PrivatePostgres, fill_with_notifications, no_room_for_notifications
from tests.store.ground import a_node
from tests.waiting import until

SLOW_COMMITS = """
CREATE FUNCTION public.take_long() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- until the room was filled, which is after this statement has looked whether there is any
    WHILE pg_notification_queue_usage() < 0.9 LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER takes_long AFTER INSERT ON rxjobs.live_jobs DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.type = 'late') EXECUTE FUNCTION public.take_long();
"""


@pytest.fixture(scope="module")
def server():
    """One with little room for notifications."""
    server = PrivatePostgres(max_notify_queue_pages="64")
    asyncio.run(server.__aenter__())
    yield server
    asyncio.run(server.__aexit__())


@pytest.fixture
async def dsn(server):
    connection = await asyncpg.connect(server.dsn)
    await connection.execute("DROP SCHEMA IF EXISTS rxjobs CASCADE")
    await connection.close()
    await rj.App(server.dsn).migrate()
    return server.dsn


@pytest.fixture
async def app(dsn):
    app = rj.App(dsn)

    @app.job(name="work")
    async def work(n: int = 0): ...

    @app.job(name="late")
    async def late(): ...

    @app.job(name="single", unique=rj.Unique())
    async def single(n: int = 0): ...

    async with app:
        yield app


@pytest.fixture
async def heard(dsn):
    """What is notified of jobs."""
    connection, heard = await asyncpg.connect(dsn), []
    await connection.add_listener("rxjobs", lambda *notified: heard.append(notified[-1]))
    yield heard
    await connection.close()


async def test_jobs_are_enqueued_without_notifications_which_are_told_to_be_missed_once_and_come_back(
    app, dsn, heard, scheduler, caplog
):
    caplog.set_level(logging.INFO)
    connection = await asyncpg.connect(dsn)
    leadership, events, seen = Leadership(await a_node(connection), 600.0, lambda event: None), [], []
    leadership.asked(1, asyncio.get_running_loop().time())
    watching = room(app.store, leadership, emit=events.append, every_seconds=0.02).subscribe(seen.append, scheduler=scheduler)
    work, single = app.definition("work"), app.definition("single")
    await until(lambda: len(seen) > 2)
    assert max(seen) < 0.5
    async with no_room_for_notifications(dsn):
        assert await connection.fetchval("SELECT pg_notification_queue_usage()") > 0.9
        seen.clear()
        await until(lambda: len(seen) > 5)
        assert min(seen[1:]) > 0.9
        before = list(heard)
        await app.enqueue_many([work.new(n) for n in range(10)])
        await asyncio.gather(*(app.enqueue(new) for n in range(10) for new in (work.new(n), single.new(n))))
        await app.queues.pause("default")
        await app.queues.resume("default")
        await app.cron.add("late", "@hourly", work.new(1))
        await app.cron.pause("late")
        assert [event.name for event in events] == ["notify.full"]
        assert isinstance(events[0], NotificationsFull)
        (line,) = [line for line in caplog.messages if "room for notifications" in line]
        assert "idle in transaction" in line
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs") == 30
    assert heard == before
    await until(lambda: len(events) == 2)
    assert isinstance(events[1], NotificationsResumed)
    await work.enqueue(11)
    await until(lambda: heard[len(before) :])
    watching.dispose()
    await connection.close()


async def test_a_room_that_is_filled_while_a_job_is_committed_costs_no_enqueue(app, dsn, connection):
    idle = await asyncpg.connect(dsn)
    await idle.add_listener("anything", lambda *_: None)
    await idle.execute("BEGIN; SELECT 1")
    await connection.execute(SLOW_COMMITS)
    late = app.definition("late")
    # an app inserts its own calls together, one batch after the other
    async with rj.App(dsn) as other:
        enqueuing = asyncio.gather(app.enqueue(late.new()), other.enqueue(late.options(unique=rj.Unique()).new()))
        await until(lambda: connection.fetchval("SELECT count(*) = 2 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))
        assert await connection.fetchval("SELECT pg_notification_queue_usage()") < 0.5
        await fill_with_notifications(dsn)
        async with asyncio.timeout(60):
            await enqueuing
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs") == 2
    await idle.close()


@pytest.fixture
async def connection(dsn):
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()
