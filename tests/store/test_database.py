import asyncio
import time
import traceback
from contextlib import suppress
from random import Random

import asyncpg
import pytest

from rxjobs.errors import InvalidDSN, NoDatabase, NotOpen
from rxjobs.store import connection
from rxjobs.store.advice import masked
from rxjobs.store.database import LINES, LOCK_TIMEOUT, STATEMENT_TIMEOUT, Database
from rxjobs.store.patience import PASSING
from tests.proxy import Proxy
from tests.servers import find_free_port
from tests.waiting import until

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://ann:{SECRET}@db.example/jobs",
        f"postgresql://ann:{SECRET}@db.example:5432,other:5433/jobs?sslmode=require",
        f"postgresql://ann:{SECRET}%40@db.example/jobs",
        f"postgresql://ann:{SECRET}/@db.example/jobs",
        f"postgresql://ann:a@{SECRET}@db.example/jobs",
        f"postgresql://ann:{SECRET}#@db.example/jobs",
        f"postgresql://ann:{SECRET}?@db.example/jobs",
        f"postgresql://:{SECRET}@db.example/jobs",
        f"postgresql://ann@db.example/jobs?password={SECRET}",
        f"postgresql://ann@db.example/jobs?sslmode=require&password={SECRET}&port=1",
        f"postgresql://ann@db.example/jobs?sslpassword={SECRET}",
        f"host=db.example user=ann password={SECRET} dbname=jobs",
        f"host=db.example user=ann password = '{SECRET} x' dbname=jobs",
        f"postgresql://ann:{SECRET}@[::1:5432/jobs",
    ],
)
def test_no_password_is_ever_shown(dsn):
    assert SECRET not in masked(dsn)
    assert "***" in masked(dsn)


@pytest.mark.parametrize(
    "dsn",
    ["postgresql://ann@db.example:5432/jobs?sslmode=require", "postgresql:///jobs?host=/tmp", "postgres://db/jobs", "nonsense"],
)
def test_a_dsn_without_a_password_is_shown_as_it_is(dsn):
    assert masked(dsn) == dsn


def test_where_a_masked_dsn_leads_is_still_to_be_seen():
    assert masked(f"postgresql://ann:{SECRET}@db.example:5432/jobs?sslmode=require") == (
        "postgresql://ann:***@db.example:5432/jobs?sslmode=require"
    )


async def refusal(dsn):
    with pytest.raises(NoDatabase) as raised:
        await Database(dsn).open()
    return str(raised.value)


async def test_a_server_that_is_not_there_is_one_clear_message():
    message = await refusal(f"postgresql://ann:{SECRET}@127.0.0.1:{find_free_port()}/jobs")
    assert message.startswith("no connection to postgresql://ann:***@127.0.0.1")
    assert "RXJOBS_DSN, --dsn or App(dsn)" in message
    assert SECRET not in message


async def test_a_database_that_is_not_there_is_named(dsn):
    message = await refusal(dsn.replace("/rxjobs_test_", "/no_such_"))
    assert "does not exist" in message


@pytest.mark.parametrize(
    "dsn",
    [
        "mysql://localhost/jobs",
        "nonsense",
        f"host=x password={SECRET}",
        "postgresql://localhost:port/x",
        f"postgresql://ann:{SECRET}/more@127.0.0.1/jobs",
        f"postgresql://ann:{SECRET}@[::1/jobs",
        f"postgresql://ann:{SECRET}@127.0.0.1:99999/jobs",
        f"postgresql://ann:{SECRET}@127.0.0.1/jobs?sslmode=maybe",
    ],
)
async def test_what_is_no_dsn_of_postgresql_is_refused_in_words_that_do_not_quote_it(dsn):
    for attempt in (Database(dsn).open, Database(dsn).connect):
        with pytest.raises(InvalidDSN, match="RXJOBS_DSN") as raised:
            await attempt()
        assert SECRET not in "".join(traceback.format_exception(raised.value))


async def test_a_connection_that_the_server_ended_is_replaced(database):
    async def pids():
        return {(await database.fetch("SELECT pg_backend_pid() AS pid"))[0]["pid"] for _ in range(3)}

    (before,) = await pids()
    other = await asyncpg.connect(database.dsn)
    await other.execute("SELECT pg_terminate_backend($1)", before)
    await other.close()
    while True:
        try:
            after = await pids()
            break
        except PASSING:  # one statement may meet the end of the old one
            await asyncio.sleep(0.01)
    assert before not in after


async def test_a_statement_that_is_cancelled_leaves_its_connection_usable(database):
    for _ in range(30):
        slow = asyncio.ensure_future(database.fetch("SELECT pg_sleep(60)"))
        await asyncio.sleep(0.005)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
    assert (await asyncio.gather(*(database.fetch("SELECT 1 AS one") for _ in range(50))))[-1][0]["one"] == 1
    await until(lambda: nobody_sleeps(database))


async def test_no_statement_waits_for_a_lock_as_long_as_one_may_take_whatever_may_take_longer(database):
    """F15: what may read a whole table does not wait for it any longer than others do."""
    assert LOCK_TIMEOUT < STATEMENT_TIMEOUT <= 5
    for line in (None, *LINES):
        assert [row["lock_timeout"] for row in await database.fetch("SHOW lock_timeout", on=line)] == ["4500ms"]
    other = await asyncpg.connect(database.dsn)
    await other.execute("SELECT pg_advisory_lock(1)")
    briefly = (
        "WITH brief AS MATERIALIZED (SELECT set_config('lock_timeout', '20ms', true)) SELECT pg_advisory_xact_lock(1) FROM brief"
    )
    for line in (None, *LINES):
        with pytest.raises(TimeoutError, match=r"somebody else has had locked what a statement needs for 4\.5 s: it did nothing"):
            await database.fetch(briefly, on=line, timeout=60)
    with pytest.raises(TimeoutError, match="somebody else has had locked"):
        async with database.transaction() as connection:
            await connection.execute(briefly)
    await other.close()
    assert len(await database.fetch(briefly)) == 1


async def nobody_sleeps(database):
    here = "datname = current_database() AND pid <> pg_backend_pid()"
    return not await database.fetch(f"SELECT FROM pg_stat_activity WHERE {here} AND query LIKE '%pg_sleep%' AND state = 'active'")


@pytest.fixture
async def small(ground):
    """A pool of two, of which a connection is to be had within a moment or not at all."""
    database = Database(ground, pool_size=2, acquire_timeout=0.3)
    await database.open()
    yield database
    await database.close()


async def taken(database, seconds=60.0, count=2):
    """Somebody takes every connection of the pool."""
    tasks = [asyncio.ensure_future(database.fetch("SELECT pg_sleep($1)", seconds)) for _ in range(count)]
    await until(lambda: database.fetch("SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'", on="reserved"))
    return tasks


async def test_a_server_that_is_slow_to_end_a_session_is_there_all_the_same(dsn, monkeypatch):
    monkeypatch.setattr(connection, "CLOSE_SECONDS", 0.1)
    async with Proxy(dsn) as proxy:
        proxy.keep_open()
        database = Database(proxy.dsn)
        await database.open()
        assert await database.fetch("SELECT 1")
        await database.close()


async def given_back(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_who_takes_every_connection_of_the_pool_takes_none_that_outcomes_are_written_on(small):
    """F12: and whoever comes too late is told within the time that it has."""
    tasks = await taken(small)
    for _ in range(20):
        assert await small.fetch("SELECT 1", on="reserved")
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"all 2 connections were in use for 0\.3 s"):
        await small.fetch("SELECT 1")
    assert time.monotonic() - began > 0.25
    await given_back(tasks)
    assert await small.fetch("SELECT 1")


async def test_those_who_waited_in_vain_leave_the_pool_whole(small):
    """As asyncpg#467 (row 69): a thousand that time out cost no connection."""
    tasks = await taken(small)
    small._acquire_timeout = 0.05
    outcomes = await asyncio.gather(*(small.fetch("SELECT 1") for _ in range(1000)), return_exceptions=True)
    assert {type(one) for one in outcomes} == {TimeoutError}
    await given_back(tasks)
    small._acquire_timeout = 5.0
    assert len(await asyncio.gather(*(small.fetch("SELECT 1") for _ in range(100)))) == 100
    pool = small._pool
    assert (pool.get_idle_size(), pool.get_size()) == (2, 2)


async def test_everybody_who_waits_comes_to_his_turn(database):
    """As asyncpg#1247 (row 71): a hundred for ten connections, each again and again, and none waits in vain."""
    turns = [0] * 100

    async def wait_again_and_again(place):
        for _ in range(20):
            await database.fetch("SELECT pg_sleep(0.001)")
            turns[place] += 1

    await asyncio.gather(*(wait_again_and_again(place) for place in range(100)))
    assert turns == [20] * 100


async def test_who_is_cancelled_with_a_connection_in_hand_disturbs_nobody(database):
    """As asyncpg#537 and #784 (row 76): "another operation is in progress" reaches nobody else."""
    random = Random(1)

    async def cancelled():
        task = asyncio.ensure_future(database.fetch("SELECT pg_sleep(0.01)"))
        await asyncio.sleep(random.uniform(0.0, 0.02))
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def others():
        for _ in range(100):
            assert await database.fetch("SELECT 1")
            assert await database.fetch("SELECT 1", on="reserved")

    await asyncio.gather(*(cancelled() for _ in range(1000)), others())
    assert await asyncio.gather(*(database.fetch("SELECT 1") for _ in range(20)))


async def test_idle_connections_that_the_server_ends_are_replaced_and_nobody_hears_of_it(database, caplog):
    """As pg-boss#381 (row 40)."""
    unhandled = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
    await asyncio.gather(*(database.fetch("SELECT pg_sleep(0.1)") for _ in range(5)), database.fetch("SELECT 1", on="reserved"))
    other = await asyncpg.connect(database.dsn)
    ours = "application_name = 'rxjobs' AND datname = current_database()"
    for _ in range(3):
        await other.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
        assert await until(lambda: other.fetchval(f"SELECT count(*) = 0 FROM pg_stat_activity WHERE {ours}"))
        await asyncio.sleep(0.05)  # their ends have been read
        assert await database.fetch("SELECT 1")
        assert await database.fetch("SELECT 1", on="reserved")
    await other.close()
    assert unhandled == []
    assert caplog.records == []


async def test_to_give_a_connection_back_costs_no_round_trip(ground):
    """A statement is one question and one answer, once it is prepared."""
    async with Proxy(ground) as proxy:
        database = Database(proxy.dsn)
        await database.open()
        for _ in range(10):
            await database.fetch("SELECT 42")
        links = list(proxy.links)
        await database.close()
    assert [text for link in links for text in link.texts if "RESET" in text or "UNLISTEN" in text or "advisory" in text] == []


async def test_a_database_that_was_closed_says_so(ground):
    database = Database(ground)
    await database.open()
    await database.close()
    with pytest.raises(NotOpen, match="the app that they belong to has ended"):
        await database.fetch("SELECT 1")
