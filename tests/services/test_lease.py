import asyncio
import threading
import time
from uuid import uuid4

import asyncpg
import pytest

from rxjobs.services.lease import Lease
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
def lease(dsn, node, lost):
    lease = Lease(dsn, "rxjobs", node, "a", seconds=SECONDS, heartbeat=HEARTBEAT, on_lost=lambda: lost.append(node))
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
    await asyncio.sleep(3 * HEARTBEAT)
    assert await connection.fetchval("SELECT expires_at FROM rxjobs.nodes") == at


def test_a_lease_may_be_stopped_before_it_began(dsn):
    lease = Lease(dsn, "rxjobs", uuid4(), "", seconds=1, heartbeat=0.1, on_lost=lambda: None)
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
    await other.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    await connection.execute(f"SELECT pg_terminate_backend(pid) FROM ({RENEWING}) AS renewing")
    await until(lambda: "is not currently accepting connections" in caplog.text)
    await other.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    await other.close()
    await until(lambda: connection.fetchval(ALIVE), seconds=5)
    await until(lambda: connection.fetchval("SELECT expires_at > now() + interval '1.3 seconds' FROM rxjobs.nodes"), seconds=5)
