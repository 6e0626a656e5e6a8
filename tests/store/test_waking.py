"""How often inserts wake those who wait for jobs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.store.waking import LONGEST_QUIET, QUIET, SHARE, Waking
from rxjobs.testing import virtually
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


class Woken:
    """What wakes the queue `default`, and when, on virtual time."""

    def __init__(self) -> None:
        self.at = list[float]()
        self.waking = Waking(self._tell)

    async def _tell(self, queues) -> None:
        assert queues == ["default"]
        self.at.append(self.now)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def insert(self, seconds: float, count: int = 1, error: Exception | None = None) -> None:
        """Insert jobs, which takes so long."""
        with self.waking.inserting(["default"], count) as wakes:
            await asyncio.sleep(seconds)
            if error is not None:
                raise error
            if wakes:
                self.at.append(self.now)

    async def insert_without_a_pause(self, seconds: float, until: float, count: int = 1) -> int:
        """Gives how often."""
        inserts = 0
        while self.now < until:
            await self.insert(seconds, count)
            inserts += 1
        return inserts


@pytest.mark.parametrize("seconds", [0.0005, 0.002, 0.02, LONGEST_QUIET / SHARE])
def test_who_inserts_without_a_pause_wakes_with_every_tenth_insert_at_most_however_long_one_takes(seconds):
    """F40: many such clients are what makes it take long, and a notification costs them all more than an insert."""

    async def insert():
        woken = Woken()
        inserts = await woken.insert_without_a_pause(seconds, until=3.0)
        assert 3.0 / LONGEST_QUIET <= len(woken.at) <= inserts / SHARE + 2
        await asyncio.sleep(10)
        assert woken.at[-1] <= 3.0 + 2 * (QUIET + seconds)  # nobody inserts any more: the last are told of soon
        assert len(woken.at) <= inserts / SHARE + 3

    virtually(insert())


@pytest.mark.parametrize("seconds", [0.001, 0.01, 0.1, 1.0])
def test_who_makes_a_pause_between_inserts_wakes_with_each(seconds):
    async def insert():
        woken = Woken()
        for _ in range(20):
            await woken.insert(seconds)
            assert woken.at[-1] == woken.now
            await asyncio.sleep(max(QUIET, 1.5 * seconds))
        assert len(woken.at) == 20

    virtually(insert())


def test_many_jobs_in_one_insert_are_told_of_as_soon_as_ever():
    """They take their time for themselves: a notification adds little to it."""

    async def insert():
        woken = Woken()
        inserts = await woken.insert_without_a_pause(0.03, until=3.0, count=1000)
        assert len(woken.at) == inserts

    virtually(insert())


def test_what_is_owed_is_told_of_though_the_insert_that_was_to_tell_failed():
    async def insert():
        woken = Woken()
        await woken.insert(0.001)
        await woken.insert(0.001)
        await asyncio.sleep(QUIET - 0.0011)  # owed, and about to be told
        assert len(woken.at) == 1
        with pytest.raises(ValueError, match="refused"):
            await woken.insert(0.01, error=ValueError("refused"))
        await asyncio.sleep(2 * LONGEST_QUIET)
        assert len(woken.at) == 2

    virtually(insert())
