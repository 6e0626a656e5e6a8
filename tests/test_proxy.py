"""The proxy does to a link what its name says: tests of outages rest on it."""

import asyncio

import asyncpg
import pytest

from tests.proxy import Proxy, listening


@pytest.fixture
async def proxy(dsn):
    async with Proxy(dsn) as proxy:
        yield proxy


@pytest.fixture
async def connection(proxy):
    connection = await asyncpg.connect(proxy.dsn, timeout=10)
    yield connection
    connection.terminate()


async def test_what_is_said_passes(connection):
    assert await connection.fetchval("SELECT repeat('x', 300000)") == "x" * 300_000


async def test_what_is_silenced_arrives_when_it_is_healed(proxy, connection):
    proxy.silence()
    asked = asyncio.ensure_future(connection.fetchval("SELECT 1"))
    assert await asyncio.wait([asked], timeout=0.3) == (set(), {asked})
    proxy.heal()
    assert await asyncio.wait_for(asked, 5) == 1


async def test_one_link_can_be_silenced_and_the_others_work(proxy, connection):
    heard = asyncio.Event()
    await connection.add_listener("here", lambda *_: heard.set())
    other = await asyncpg.connect(proxy.dsn)
    proxy.silence(listening)
    await asyncio.wait_for(other.execute("NOTIFY here"), 5)
    waiting = asyncio.ensure_future(heard.wait())
    assert await asyncio.wait([waiting], timeout=0.3) == (set(), {waiting})
    proxy.heal()
    await asyncio.wait_for(waiting, 5)
    await other.close()


async def test_a_reset_ends_every_link_at_once(proxy, connection):
    proxy.reset()
    with pytest.raises((OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError)):
        await connection.fetchval("SELECT 1")


async def test_an_answer_that_is_cut_off_was_given(proxy, connection):
    await connection.execute("CREATE TABLE t (n integer)")
    trap = proxy.cut_after("INSERT INTO t", times=1)
    with pytest.raises((OSError, asyncpg.PostgresConnectionError)):
        await connection.fetch("INSERT INTO t VALUES ($1)", 7)
    assert trap.sprung.is_set()
    again = await asyncpg.connect(proxy.dsn)
    assert await again.fetchval("SELECT n FROM t") == 7
    await again.close()


async def test_notifications_can_be_swallowed_alone(proxy, connection):
    heard = []
    await connection.add_listener("here", lambda *notified: heard.append(notified[3]))
    proxy.swallow("A")
    await connection.execute("NOTIFY here, 'one'")
    assert proxy.swallowed == 1
    proxy.heal()
    await connection.execute("NOTIFY here, 'two'")
    assert heard == ["two"]


async def test_a_statement_is_seen_when_it_is_sent(proxy, connection):
    trap = proxy.watch_for("SELECT 42", "B")
    assert not trap.sprung.is_set()
    await connection.fetch("SELECT 42")
    assert trap.sprung.is_set()


async def test_a_link_can_be_made_late_and_slow(proxy, connection):
    loop = asyncio.get_running_loop()
    proxy.delay(0.2)
    began = loop.time()
    await connection.execute("SELECT 1")
    assert loop.time() - began >= 0.4
    proxy.heal()
    proxy.slow(100_000)
    began = loop.time()
    await connection.fetchval("SELECT repeat('x', 30000)")
    assert loop.time() - began >= 0.29
