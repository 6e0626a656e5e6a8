import asyncio
import threading
import time
from uuid import uuid4

import asyncpg
import pytest

from rxjobs.services.lease import Lease
from rxjobs.store.database import Database
from tests.proxy import Proxy
from tests.waiting import until

SECONDS, HEARTBEAT = 1.5, 0.1


@pytest.fixture
async def node(store):
    node = uuid4()
    await store.take_lease(node, "a", 1, SECONDS)
    return node


@pytest.fixture
def lost():
    return []


@pytest.fixture
def told():
    """What the lease has told, in order."""
    return []


def make(dsn, node, lost, told, cut_off_at=None):
    return Lease(
        Database(dsn), "rxjobs", node, "a", seconds=SECONDS, heartbeat=HEARTBEAT,
        on_cut_off=lambda: [told.append("cut off"), cut_off_at is not None and cut_off_at.append(time.time())],
        on_lost=lambda: [lost.append(node), told.append("lost")],
        on_restored=lambda: told.append("restored"),
    )  # fmt: skip


@pytest.fixture
def lease(dsn, node, lost, told):
    lease = make(dsn, node, lost, told)
    lease.start()
    yield lease
    lease.stop()


ALIVE = "SELECT expires_at > now() FROM rxjobs.nodes"


async def test_a_lease_is_kept_while_the_event_loop_is_blocked(connection, lease, lost):
    time.sleep(2 * SECONDS)  # noqa: ASYNC251 - the loop that the jobs run in, blocked
    assert await connection.fetchval(ALIVE)
    assert lost == []


async def test_a_lease_that_was_taken_away_is_told_and_taken_up_again(connection, lease, lost, node):
    await connection.execute("DELETE FROM rxjobs.nodes")
    await until(lambda: connection.fetchval(ALIVE))
    assert lost == [node]


async def test_a_stopped_lease_is_renewed_no_more_and_its_thread_is_gone(connection, lease):
    lease.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "rxjobs-lease"]
    at = await connection.fetchval("SELECT expires_at FROM rxjobs.nodes")
    await asyncio.sleep(3 * HEARTBEAT)  # in which it would be renewed
    assert await connection.fetchval("SELECT expires_at FROM rxjobs.nodes") == at


def test_a_lease_may_be_stopped_before_it_began(dsn):
    lease = make(dsn, uuid4(), [], [])
    lease.start()
    lease.stop()


async def test_a_connection_that_was_ended_costs_nothing(connection, lease, lost):
    for _ in range(3):
        await until(lambda: connection.fetchval(RENEWING))
        await connection.execute(f"SELECT pg_terminate_backend(pid) FROM ({RENEWING}) AS renewing")
    await asyncio.sleep(SECONDS)
    assert await connection.fetchval(ALIVE)
    assert lost == []


RENEWING = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%Keep node%' AND pid <> pg_backend_pid()"
)


async def test_no_error_ends_it_for_good(connection, lease, lost, caplog, postgres):
    """Not even one that does not look as if it passed: who cannot renew has to go on trying, and to say so."""
    name = await connection.fetchval("SELECT current_database()")
    other = await asyncpg.connect(postgres)
    await until(lambda: connection.fetchval(RENEWING))
    await other.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    await connection.execute(f"SELECT pg_terminate_backend(pid) FROM ({RENEWING}) AS renewing")
    await until(lambda: "is not currently accepting connections" in caplog.text)
    await other.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    await other.close()
    await until(lambda: connection.fetchval(ALIVE))
    await until(lambda: connection.fetchval("SELECT expires_at > now() + interval '1.3 seconds' FROM rxjobs.nodes"))


@pytest.fixture
async def proxy(dsn):
    async with Proxy(dsn) as proxy:
        yield proxy


async def test_who_cannot_renew_is_cut_off_before_the_lease_is_over_and_told_when_there_is_one_again(connection, proxy, node, told):
    cut_off_at: list[float] = []
    lease = make(proxy.dsn, node, [], told, cut_off_at)
    lease.start()
    await until(lambda: any(link.is_about("Keep node") for link in proxy.links))
    for _ in range(2):
        proxy.silence()
        await until(lambda: told)
        assert told == ["cut off"]
        expiry = await connection.fetchval("SELECT extract(epoch FROM expires_at)::float8 FROM rxjobs.nodes")
        assert 0 < expiry - cut_off_at[-1] < 0.2 * SECONDS + HEARTBEAT + 0.1
        await asyncio.sleep(SECONDS)
        assert told == ["cut off"]
        proxy.heal()
        await until(lambda: len(told) == 2)
        assert told == ["cut off", "restored"]
        assert await connection.fetchval(ALIVE)
        told.clear()
    lease.stop()


async def test_a_lease_that_was_lost_is_had_again_over_a_link_on_which_to_connect_takes_long(connection, proxy, node, told):
    """Two questions and their answers take more than the third of a lease after which a link passes for a silent one."""
    lease = make(proxy.dsn, node, [], told)
    lease.start()
    await until(lambda: any(link.is_about("Keep node") for link in proxy.links))
    proxy.refuse()
    await until(lambda: told)
    proxy.heal()
    proxy.delay(SECONDS / 10)
    await until(lambda: "restored" in told)
    lease.stop()


async def test_who_loses_its_lease_is_cut_off_first(connection, lease, told):
    await connection.execute("DELETE FROM rxjobs.nodes")
    await until(lambda: told)
    await until(lambda: connection.fetchval(ALIVE))
    await until(lambda: len(told) == 3)
    assert told == ["cut off", "lost", "restored"]


async def test_who_is_watched_renews_about_once_a_second_however_often_that_is_asked_for(dsn, connection, node):
    renewed = list[float]()
    lease = Lease(
        Database(dsn), "rxjobs", node, "a", seconds=3000, heartbeat=1000,
        on_cut_off=lambda: None, on_lost=lambda: None, on_restored=lambda: None, status=lambda: renewed.append(time.monotonic()),
    )  # fmt: skip
    lease.hasten()  # before it began
    lease.start()
    try:
        await until(lambda: renewed)
        while len(renewed) < 3:
            lease.hasten()
            await asyncio.sleep(0.001)
    finally:
        lease.stop()
    lease.hasten()  # after it has ended
    first, second, third = renewed[:3]
    assert second - first > 0.9
    assert third - second > 0.9
