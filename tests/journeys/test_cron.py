"""Jobs that come again: every slot once, whoever leads, and what is asked of entries at run time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise

import asyncpg
import pytest

import rxjobs as rj
from tests.store.ground import a_shared_database, emptied

SECONDLY = "* * * * * *"


@pytest.fixture(scope="module")
def ground(databases):
    yield from a_shared_database(databases)


@pytest.fixture
async def dsn(ground):
    dsn = await emptied(ground)
    connection = await asyncpg.connect(dsn)
    await connection.execute("DELETE FROM rxjobs.cron_entries; DELETE FROM rxjobs.cron_slots")
    await connection.close()
    return dsn


@pytest.fixture
async def connection(dsn):
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


def an_app(dsn, **settings):
    app = rj.App(dsn, lease_seconds=2, heartbeat_seconds=0.5, leader_seconds=1, **settings)

    @app.job(name="tick")
    async def tick(n: int = 0) -> None: ...

    return app, tick


async def slots(connection, type_="tick"):
    rows = await connection.fetch("SELECT scheduled_at FROM rxjobs.jobs WHERE type = $1 ORDER BY scheduled_at", type_)
    return [row["scheduled_at"] for row in rows]


async def until(fact):
    async with asyncio.timeout(60):
        while not await fact():  # noqa: ASYNC110 - the fact is in the database
            await asyncio.sleep(0.05)


def each_second_once(found):
    return all(second - first == timedelta(seconds=1) for first, second in pairwise(found))


async def test_every_second_is_made_into_one_job_by_whoever_leads(dsn, connection):
    """Two nodes, and the one that leads goes."""
    first, tick = an_app(dsn)
    second, other = an_app(dsn)
    first.cron(SECONDLY, tick.new())
    second.cron(SECONDLY, other.new())

    async def enough(count):
        return len(await slots(connection)) >= count

    async with second.running():
        async with first.running():
            await until(lambda: enough(2))
        before = len(await slots(connection))
        await until(lambda: enough(before + 2))
    found = await slots(connection)
    assert each_second_once(found)
    assert all(slot.microsecond == 0 for slot in found)
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.jobs WHERE state = 'completed'") >= len(found) - 1


async def test_an_entry_that_no_living_node_declares_any_more_is_off(dsn, connection):
    first, tick = an_app(dsn)
    first.cron(SECONDLY, tick.new(), name="old")
    async with first.running():
        await until(lambda: at_least(connection, 1))
    second, _ = an_app(dsn)
    async with second.running():
        (entry,) = await second.cron.list()
        assert (entry.name, entry.is_on, entry.next_slot) == ("old", False, None)
        count = len(await slots(connection))
        await connection.execute("UPDATE rxjobs.cron_entries SET done_until = now() - interval '1 hour'")
        await asyncio.sleep(1.5)  # a second passes, in which it would be due
        assert len(await slots(connection)) == count


async def at_least(connection, count, type_="tick"):
    return len(await slots(connection, type_)) >= count


@pytest.mark.parametrize(("missed", "count"), [("skip", 0), ("once", 1), ("all", 59)])
async def test_what_was_missed_is_made_up_for_as_is_asked(dsn, connection, missed, count):
    """The last run was an hour ago, as far as is known: the slots of the last minute are not missed yet."""
    app, tick = an_app(dsn)
    async with app:
        assert await app.cron.add("minutely", "* * * * *", tick.new(), missed=missed)
        await connection.execute("UPDATE rxjobs.cron_entries SET done_until = date_trunc('minute', now()) - interval '1 hour'")
        begun = await connection.fetchval("SELECT now()")
        async with app.running():
            await until(lambda: is_done(connection, begun))
    found = await slots(connection)
    recent = [slot for slot in found if slot > begun - timedelta(seconds=60)]
    assert len(recent) in (1, 2)
    assert len(found) - len(recent) in {count, count + 1 if missed == "all" else count}


async def is_done(connection, since):
    return await connection.fetchval("SELECT done_until >= $1 FROM rxjobs.cron_entries", since)


async def test_entries_are_added_paused_resumed_run_and_removed_at_run_time(dsn, connection):
    app, tick = an_app(dsn)
    async with app, app.running():
        assert await app.cron.add("by hand", SECONDLY, tick.new(n=1))
        await until(lambda: at_least(connection, 1))
        assert await app.cron.pause("by hand")
        assert not await app.cron.pause("by hand")
        await asyncio.sleep(0.1)  # whoever was at it when it was paused is done
        count = len(await slots(connection))
        await asyncio.sleep(1.2)  # a second passes, in which it would be due
        assert len(await slots(connection)) == count
        (entry,) = await app.cron.list()
        assert (entry.is_on, entry.is_declared, entry.paused_at is not None) == (False, False, True)
        ran = await app.cron.run("by hand")
        assert (await app.jobs.get(ran.id)).args == {"n": 1}
        assert await app.cron.resume("by hand")
        await until(lambda: at_least(connection, count + 2))
        assert not await app.cron.add("by hand", "0 0 1 1 *", tick.new(n=2), tz="Europe/Berlin")
        (entry,) = await app.cron.list()
        assert (entry.expression, entry.tz, entry.next_slot.astimezone().month in (12, 1)) == ("0 0 1 1 *", "Europe/Berlin", True)
        assert await app.cron.remove("by hand")
        assert await app.cron.list() == []
        with pytest.raises(rj.UnknownCron, match="there is no entry of cron named 'by hand'; there are none"):
            await app.cron.pause("by hand")


async def test_a_slot_that_another_leader_took_is_not_made_again(dsn, connection):
    """Whatever it believes: the primary key of slots says no."""
    app, tick = an_app(dsn)
    async with app:
        await app.cron.add("secondly", SECONDLY, tick.new())
        async with app.running():
            await until(lambda: at_least(connection, 2))
        taken = await slots(connection)
        await connection.execute("UPDATE rxjobs.cron_entries SET done_until = $1", taken[0] - timedelta(seconds=1))
        async with app.running():
            await until(lambda: at_least(connection, len(taken) + 1))
    found = await slots(connection)
    assert len(found) == len(set(found))


async def test_its_job_may_be_unique_and_sealed(dsn, connection):
    app = rj.App(dsn, codec=rj.EncryptedCodec(keys={"k": b"k" * 32}))

    @app.job(name="sync", unique=rj.Unique(on_conflict="raise"), queue="slow")
    async def sync(account: int) -> None: ...

    async with app:
        await app.cron.add("sync", SECONDLY, sync.new(account=7))
        await app.queues.pause("slow")
        async with app.running():
            await until(lambda: has_slots(connection, 3))
        assert len(await slots(connection, "sync")) == 1
        (job,) = await app.jobs.list()
        assert job.args == {"account": 7}


async def has_slots(connection, count):
    return await connection.fetchval("SELECT count(*) FROM rxjobs.cron_slots") >= count


def test_entries_in_code_have_names_of_their_own():
    app, tick = an_app("postgresql://nowhere/nothing")
    assert app.cron("@hourly", tick.new()).name == "tick @hourly UTC"
    assert app.cron("@hourly", tick.new(n=1)).name == "tick @hourly UTC #2"
    assert app.cron("0 8 * * 1-5", tick.new(), tz="Europe/Berlin").name == "tick 0 8 * * 1-5 Europe/Berlin"
    assert app.cron("0 8 * * *", tick.new(), name="mine").name == "mine"
    with pytest.raises(rj.InvalidOption, match="two entries of cron are named 'mine'"):
        app.cron("0 8 * * *", tick.new(), name="mine")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda app, tick: app.cron("8 * * *", tick.new()), "cron takes five fields .* not '8 \\* \\* \\*'"),
        (lambda app, tick: app.cron("0 0 30 2 *", tick.new()), "cron"),
        (lambda app, tick: app.cron("@hourly", tick.new(), tz="Mars/Olympus"), "there is no time zone 'Mars/Olympus'"),
        (lambda app, tick: app.cron("@hourly", tick), r"takes what a job type's new\(...\) made"),
        (lambda app, tick: app.cron("@hourly", tick.new(), missed="twice"), "missed is 'skip', 'once' or 'all', not 'twice'"),
        (lambda app, tick: app.cron("@hourly", tick.options(delay=1).new()), "leave delay and scheduled_at out"),
        (lambda app, tick: app.cron("@hourly", tick.new(), name=" "), "named by text"),
    ],
)
def test_what_cannot_be_an_entry_is_refused_where_it_is_declared(call, words):
    app, tick = an_app("postgresql://nowhere/nothing")
    with pytest.raises(rj.InvalidOption, match=words):
        call(app, tick)
