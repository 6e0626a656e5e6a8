"""How often inserts wake those who wait for jobs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.store.waking import QUIET
from tests.waiting import until


@pytest.fixture
async def heard(dsn):
    """What is heard on the channel."""
    queues = list[str]()
    connection = await asyncpg.connect(dsn)
    await connection.add_listener("rxjobs", lambda *notice: queues.append(notice[-1]))
    yield queues
    await connection.close()


@asynccontextmanager
async def an_app(dsn):
    app = rj.App(dsn, migrate=True)

    @app.job(name="send")
    async def send(n: int) -> None: ...

    async with app:
        yield app, send


async def test_the_first_job_in_a_while_wakes_with_its_own_commit(dsn, heard):
    async with an_app(dsn) as (_, send):
        await send.enqueue(1)
        await until(lambda: heard == ["default"])


async def test_many_inserts_wake_a_few_times_and_the_last_is_told_of_too(dsn, heard):
    async with an_app(dsn) as (_, send):
        for n in range(200):
            await send.enqueue(n)
        assert len(heard) < 100
        await asyncio.sleep(2 * QUIET)  # what was owed is told of by now
        await send.enqueue(200)
        heard.clear()
        await send.enqueue(201)
        await until(lambda: heard)


async def test_each_queue_is_told_of(dsn, heard):
    async with an_app(dsn) as (app, send):
        await send.enqueue(1)
        await app.enqueue_many([send.new(2), send.options(queue="mail").new(3), send.options(queue="sms").new(4)])
        await send.options(queue="mail").enqueue(5)
        await until(lambda: {"default", "mail", "sms"} <= {*heard})


async def test_an_app_that_closes_tells_of_what_it_owes(dsn, heard):
    async with an_app(dsn) as (_, send):
        await send.enqueue(1)
        await send.enqueue(2)
    await until(lambda: len(heard) == 2)


async def test_a_transaction_of_the_callers_own_wakes_once_when_it_commits(dsn, heard):
    async with an_app(dsn) as (app, send):
        await send.enqueue(0)
        connection = await asyncpg.connect(dsn)
        async with connection.transaction():
            for n in range(20):
                await app.enqueue(send.new(n), connection)
            await asyncio.sleep(0.1)
            assert heard == ["default"]
        await until(lambda: len(heard) == 2)
        await connection.close()


async def test_with_notify_off_nobody_is_told(dsn, heard):
    app = rj.App(dsn, migrate=True, notify=False)

    @app.job(name="send")
    async def send(n: int) -> None: ...

    async with app:
        for n in range(50):
            await send.enqueue(n)
        await app.enqueue_many([send.new(1)])
    await heard_until_now(dsn, heard)
    assert heard == ["end"]


async def heard_until_now(dsn, heard):
    """What was sent before is heard before this."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("NOTIFY rxjobs, 'end'")
    await connection.close()
    await until(lambda: "end" in heard)
