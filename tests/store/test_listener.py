import asyncio

import asyncpg
import pytest

from rxjobs.store import listener as listening
from rxjobs.store.database import Database
from rxjobs.store.listener import Listener
from tests.waiting import until

HERE = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"


@pytest.fixture
async def heard(dsn):
    heard = []
    task = asyncio.ensure_future(Listener(Database(dsn), "rxjobs", heard.append).listen())
    yield heard
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.fixture
async def other(dsn):
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def test_it_hears_queues_and_first_of_all_that_something_may_have_been_missed(heard, other):
    await until(lambda: heard == [None])
    await other.execute("SELECT pg_notify('rxjobs', 'mail')")
    await other.execute("SELECT pg_notify('order', 'not ours')")
    await other.execute("SELECT pg_notify('rxjobs', '')")
    await other.execute("SELECT pg_notify('rxjobs', $1)", "x" * 7_999)
    await other.execute("SELECT pg_notify('rxjobs', 'end')")
    await until(lambda: heard[-1:] == ["end"])
    assert heard == [None, "mail", "end"]


async def test_a_lost_connection_is_replaced_and_told_as_something_missed(heard, other):
    for times in (1, 2, 3):
        await until(lambda times=times: heard == [None] * times)
        await other.execute(f"SELECT pg_terminate_backend(pid) FROM ({HERE}) AS listening")
    await until(lambda: heard == [None] * 4)


async def test_no_error_ends_it_for_good(heard, other, postgres, monkeypatch, caplog):
    monkeypatch.setattr(listening, "PING_SECONDS", 0.2)
    await until(lambda: heard == [None])
    name = await other.fetchval("SELECT current_database()")
    outside = await asyncpg.connect(postgres)
    await outside.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    await other.execute(f"SELECT pg_terminate_backend(pid) FROM ({HERE}) AS listening")
    await until(lambda: "cannot be listened for" in caplog.text)
    await outside.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    await outside.close()
    await until(lambda: heard == [None, None])


async def test_a_cancelled_listener_leaves_no_connection(dsn, other):
    heard = []
    task = asyncio.ensure_future(Listener(Database(dsn), "rxjobs", heard.append).listen())
    await until(lambda: heard)
    task.cancel()
    await asyncio.wait([task])
    await until(lambda: nobody(other))


async def nobody(connection):
    return await connection.fetchval(f"SELECT count(*) = 0 FROM ({HERE}) AS listening")
