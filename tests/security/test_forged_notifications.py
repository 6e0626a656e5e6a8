"""Any role may notify any channel: a notification is a hint, and junk is nothing."""

import logging

import asyncpg

import rxjobs as rj
from tests.listening import LISTENS
from tests.waiting import until

JUNK = [
    "",
    "stop",
    "default:pause",
    " ",
    "\x01",
    "'",
    '{"queue": "default"}',
    "pause",
    "x" * 129,
    "\N{PILE OF POO}" * 100,
    "x" * 7999,
    "another queue",
]


async def test_junk_on_the_channel_is_ignored_and_the_worker_goes_on_listening(dsn, caplog):
    caplog.set_level(logging.WARNING)
    # so slow a poll that only a notification can start a job in time
    app = rj.App(dsn, migrate=True, poll_seconds=3600)
    ran, wakes = [], []
    app.woken.subscribe(wakes.append)

    @app.job(name="work")
    async def work(n: int) -> None:
        ran.append(n)

    async with app.running():
        connection = await asyncpg.connect(dsn)
        await until(lambda: listens(connection))
        for round_ in range(3):
            for junk in JUNK:
                await connection.execute("SELECT pg_notify('rxjobs', $1)", junk)
            await work.enqueue(round_)
            await until(lambda round_=round_: ran == [*range(round_ + 1)])
        await connection.close()
    assert not caplog.records
    assert set(wakes) == {None, "default"}  # nobody is even asked whether junk is for him


async def test_a_flood_of_forged_wakes_costs_fetches_one_at_a_time_and_no_job(dsn):
    app = rj.App(dsn, migrate=True, poll_seconds=3600)
    ran = []
    fetches = []

    @app.job(name="work")
    async def work(n: int) -> None:
        ran.append(n)

    async with app.running():
        fetch, at_once = app.store.fetch_jobs, 0

        async def counted(*arguments):
            nonlocal at_once
            at_once += 1
            fetches.append(at_once)
            try:
                return await fetch(*arguments)
            finally:
                at_once -= 1

        app.store.fetch_jobs = counted  # type: ignore[method-assign]
        connection = await asyncpg.connect(dsn)
        await until(lambda: listens(connection))
        await connection.execute("SELECT pg_notify('rxjobs', 'default') FROM generate_series(1, 10)")
        for _ in range(200):
            await connection.execute("SELECT pg_notify('rxjobs', 'default')")
        await work.enqueue(1)
        await until(lambda: ran == [1])
        await connection.close()
    assert max(fetches) == 1
    assert len(fetches) <= 210


async def listens(connection):
    """Whether the worker hears this database's channel by now: before, a notification would prove nothing."""
    return await connection.fetchval(f"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {LISTENS}")
