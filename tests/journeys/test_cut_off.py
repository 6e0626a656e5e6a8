"""A node that cannot renew its lease gives its jobs up by itself, before others may take them."""

import asyncio
import signal
import time

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.testing import fill
from tests.proxy import Proxy
from tests.waiting import until

LEASE = 3.0
FAST = {"rxjobs_lease_seconds": LEASE, "rxjobs_heartbeat_seconds": 0.5, "rxjobs_rescue_seconds": 0.5, "rxjobs_poll_seconds": 0.5}


@pytest.fixture
async def proxy(dsn):
    await rj.App(dsn).migrate()
    async with Proxy(dsn) as proxy:
        yield proxy


@pytest.fixture
async def connection(dsn, proxy):
    connection = await asyncpg.connect(dsn)
    # for so long after its own start a server lets nobody be taken for dead
    await until(lambda: connection.fetchval(f"SELECT now() - pg_postmaster_start_time() > interval '{LEASE} seconds'"))
    yield connection
    await connection.close()


async def expiry(connection, worker):
    """When the lease of a worker is over, as things stand."""
    return await connection.fetchval(
        "SELECT extract(epoch FROM expires_at)::float8 FROM rxjobs.nodes WHERE pid = $1", worker.process.pid
    )


async def all_completed(connection, count):
    return await connection.fetchval("SELECT count(*) = $1 FROM rxjobs.finished_jobs WHERE state = 'completed'", count)


async def stop(worker):
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.ended() == 0, worker.log
    assert "Traceback" not in worker.log


async def test_a_coroutine_is_cancelled_before_the_lease_ends_and_runs_elsewhere_afterwards(connection, dsn, proxy, start):
    await fill(connection, "work", 30, args={"seconds": 4.0})
    alone = start(proxy.dsn, rxjobs_shutdown_grace=1, **FAST)
    await until(lambda: len(alone.lines("start")) == 20)  # the others are held, and wait for their turn
    proxy.silence()
    await asyncio.sleep(0.3)  # what was on its way has arrived
    over = await expiry(connection, alone)
    other = start(dsn, max_demand=60, rxjobs_shutdown_grace=1, **FAST)
    await until(lambda: len(alone.lines("cancelled")) == 20)
    assert max(line.at for line in alone.lines("cancelled")) < over
    await until(lambda: len(other.lines("start")) > 0)
    assert min(line.at for line in other.lines("start")) > over
    await until(lambda: all_completed(connection, 30))
    assert len(alone.lines("start")) == 20
    assert sorted(other.ids("end")) == sorted(other.ids("start"))
    assert len(set(other.ids("end"))) == 30
    proxy.heal()
    await until(lambda: "has a lease again" in alone.log)
    await fill(connection, "work", 200, args={"seconds": 0.05})
    await until(lambda: all_completed(connection, 230))
    assert len(alone.lines("end")) > 20
    await stop(alone)
    await stop(other)


async def test_what_is_cut_off_and_taken_by_nobody_is_released_without_losing_the_attempt(connection, proxy, start):
    await fill(connection, "work", 1, args={"seconds": 5.0})
    await fill(connection, "thread", 1, args={"seconds": 5.0})
    alone = start(proxy.dsn, rxjobs_shutdown_grace=1, **FAST)
    await until(lambda: len(alone.lines("start")) == 2)
    work, thread = (next(line.id for line in alone.lines("start") if line.id == id_) for id_ in (1, 2))
    proxy.silence()
    await until(lambda: "do not stop, and may overlap" in alone.log)
    assert f"jobs [{thread}] do not stop" in alone.log
    assert alone.ids("cancelled") == [work]
    proxy.heal()
    await until(lambda: all_completed(connection, 2))
    assert alone.ids("start") == [work, thread, work] or alone.ids("start") == [thread, work, work]
    rows = await connection.fetch("SELECT attempt, errors FROM rxjobs.finished_jobs")
    assert {(row["attempt"], row["errors"]) for row in rows} == {(1, None)}
    await stop(alone)


async def test_while_only_the_lease_cannot_be_renewed_nothing_is_claimed(connection, dsn, proxy, start):
    """The links that jobs are claimed and acked on are sound."""
    alone = start(proxy.dsn, rxjobs_shutdown_grace=1, **FAST)
    await fill(connection, "work", 10, args={"seconds": 0.01})
    await until(lambda: all_completed(connection, 10))
    proxy.silence(lambda link: link.is_about("Keep node"))
    await until(lambda: "gives its jobs up" in alone.log)
    started = len(alone.lines("start"))
    await fill(connection, "work", 10, args={"seconds": 0.01})
    await connection.execute("SELECT pg_notify('rxjobs', 'default')")
    await asyncio.sleep(2 * LEASE)  # in which whoever has no lease would have claimed, and must not
    assert len(alone.lines("start")) == started
    assert await connection.fetchval("SELECT sum(attempt) FROM rxjobs.live_jobs") == 0
    proxy.heal()
    await until(lambda: all_completed(connection, 20))
    await stop(alone)


async def test_after_a_blocked_event_loop_being_cut_off_comes_first(connection, dsn, proxy, start):
    alone = start(proxy.dsn, rxjobs_shutdown_grace=1, **FAST)
    await until(lambda: connection.fetchval("SELECT count(*) FROM rxjobs.nodes"))
    await fill(connection, "work", 1, args={"seconds": 2.0})
    await until(lambda: alone.lines("start"))
    await fill(connection, "block", 1, args={"seconds": 4.5})
    await connection.execute("SELECT pg_notify('rxjobs', 'default')")
    await until(lambda: len(alone.lines("start")) == 2)
    proxy.silence()
    blocked = time.time()
    await until(lambda: len(alone.lines()) > 2)
    assert time.time() > blocked + 4
    await until(lambda: alone.lines("cancelled"))
    work = alone.lines("start")[0].id
    assert alone.ids("cancelled") == [work]  # though its two seconds had been over for long
    assert work not in alone.ids("end")
    proxy.heal()
    await until(lambda: all_completed(connection, 2))
    await stop(alone)
