"""PostgreSQL goes away, and comes back."""

import asyncio
import os
import signal
import time
from uuid import uuid4

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.testing import fill
from tests.listening import LISTENS
from tests.proxy import Proxy
from tests.servers import PrivatePostgres
from tests.waiting import until

SMALL = {"shared_buffers": "16MB", "max_connections": "40"}
FAST = {"rxjobs_lease_seconds": 3, "rxjobs_heartbeat_seconds": 0.5, "rxjobs_rescue_seconds": 0.5, "rxjobs_poll_seconds": 0.5}
RECOVERY = 20.0
"""Seconds from a server that accepts connections to the next job that starts; on a machine that is busy."""


async def counted(dsn, sql):
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def filled(dsn, count, seconds):
    await rj.App(dsn).migrate()
    connection = await asyncpg.connect(dsn)
    await fill(connection, "work", count, args={"seconds": seconds})
    await connection.close()


def exactly_once(workers, count):
    started = [id_ for worker in workers for id_ in worker.ids("start")]
    ended = [id_ for worker in workers for id_ in worker.ids("end")]
    assert len(started) == len(set(started)) == count
    assert sorted(ended) == sorted(started)


@pytest.mark.timeout(240)
async def test_a_server_that_is_stopped_for_ten_seconds_three_times_costs_no_job(start):
    """The workers, two of them, are not started again; their leases are shorter than the outage."""
    async with PrivatePostgres(**SMALL) as postgres:
        await filled(postgres.dsn, 1_200, 0.2)
        workers = [start(postgres.dsn, max_demand=30, **FAST) for _ in range(2)]
        for _ in range(3):
            before = sum(len(worker.lines("start")) for worker in workers)
            await until(lambda before=before: sum(len(worker.lines("start")) for worker in workers) > before + 100)
            await postgres.stop()
            await asyncio.sleep(10)  # the outage: longer than a lease
            idle = [len(worker.lines("start")) for worker in workers]
            assert all(worker.process.poll() is None for worker in workers)
            await postgres.start()
            back = time.time()
            for worker, before in zip(workers, idle, strict=True):
                await until(lambda worker=worker, before=before: len(worker.lines("start")) > before)
                assert worker.lines("start")[before].at - back < RECOVERY, worker.log
        done = "SELECT count(*) = 1200 FROM rxjobs.finished_jobs WHERE state = 'completed' AND attempt = 1 AND errors IS NULL"
        await until(lambda: counted(postgres.dsn, done))
        exactly_once(workers, 1_200)
        for worker in workers:
            assert len(worker.log.splitlines()) < 150  # a few lines for each part that had to wait, and each time
            worker.process.send_signal(signal.SIGTERM)
            assert await worker.ended() == 0
            assert "Traceback" not in worker.log


async def test_crashes_of_the_server_cost_no_job(start):
    async with PrivatePostgres(**SMALL) as postgres:
        await filled(postgres.dsn, 800, 0.05)
        worker = start(postgres.dsn, **FAST)

        async def ran(more):
            before = len(worker.lines("start"))
            await until(lambda: len(worker.lines("start")) > before + more)

        await ran(50)
        backend = await counted(postgres.dsn, "SELECT pid FROM pg_stat_activity WHERE application_name = 'rxjobs' LIMIT 1")
        os.kill(backend, signal.SIGKILL)  # the others are ended by the postmaster, which then recovers
        await ran(50)
        await postgres.restart("immediate")
        await ran(50)
        await postgres.kill_postmaster()
        await postgres.start()
        done = "SELECT count(*) = 800 FROM rxjobs.finished_jobs WHERE state = 'completed'"
        await until(lambda: counted(postgres.dsn, done))
        exactly_once([worker], 800)


async def test_a_stop_does_not_wait_for_a_database_that_is_away(start):
    """As pgqueuer#296 (row 30): what could not be written down is told, job by job."""
    async with PrivatePostgres(**SMALL) as postgres:
        await filled(postgres.dsn, 200, 0.1)
        worker = start(postgres.dsn, rxjobs_shutdown_grace=1, **FAST)
        await until(lambda: len(worker.lines("start")) > 20)
        await postgres.stop()
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.ended() == 0
        assert "could not be written down; their lease will free them" in worker.log


async def test_a_server_in_recovery_is_waited_for_until_it_is_promoted(start):
    """F6, and as graphile#449 (row 34): 57P03 while it starts, 25006 while it is a standby, and neither costs anything."""
    async with PrivatePostgres(**SMALL) as postgres:
        await filled(postgres.dsn, 300, 0.05)
        worker = start(postgres.dsn, **FAST)
        await until(lambda: len(worker.lines("start")) > 10)
        await postgres.stand_by()
        connection = await asyncpg.connect(postgres.dsn)
        assert await connection.fetchval("SELECT pg_is_in_recovery()")
        await until(lambda: "read-only transaction" in worker.log or "during recovery" in worker.log)
        await asyncio.sleep(4)  # longer than a lease
        assert worker.process.poll() is None
        before = len(worker.lines("start"))
        assert await connection.fetchval("SELECT pg_promote()")
        promoted = time.time()
        await until(lambda: len(worker.lines("start")) > before)
        print(f"the first job began {worker.lines('start')[before].at - promoted:.2f} s after the promotion")
        await until(lambda: connection.fetchval("SELECT count(*) = 300 FROM rxjobs.finished_jobs WHERE state = 'completed'"))
        assert await connection.fetchval("SELECT max(attempt) FROM rxjobs.finished_jobs") == 1
        await connection.close()
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.ended() == 0
        assert "Traceback" not in worker.log


async def test_a_standby_that_takes_over_late_takes_no_job_from_a_node_that_lives(start):
    """It has been up all the time; and one node comes to it later than the other, who leads there."""
    async with PrivatePostgres(**SMALL) as postgres, Proxy(postgres.dsn) as proxy:
        await filled(postgres.dsn, 0, 0)
        late = start(proxy.dsn, **FAST)
        connection = await asyncpg.connect(postgres.dsn)
        await fill(connection, "thread", 1, args={"seconds": 10.0})
        await connection.close()
        await until(lambda: late.lines("start"))
        other = start(postgres.dsn, **FAST)
        await until(lambda: counted(postgres.dsn, "SELECT count(*) = 2 FROM rxjobs.nodes"))
        await postgres.stand_by()
        proxy.silence()
        await asyncio.sleep(4)  # longer than a lease
        connection = await asyncpg.connect(postgres.dsn)
        await connection.fetchval("SELECT pg_promote()")
        leads = (
            "SELECT count(*) = 1 FROM rxjobs.leaders JOIN rxjobs.nodes ON id = node WHERE leaders.expires_at > now() AND pid = $1"
        )
        await until(lambda: connection.fetchval(leads, other.process.pid))
        await asyncio.sleep(1.5)  # three times as long as it takes to look for dead nodes
        proxy.heal()
        await until(lambda: connection.fetchval("SELECT count(*) = 1 FROM rxjobs.finished_jobs"))
        (row,) = await connection.fetch("SELECT state::text, attempt, errors FROM rxjobs.finished_jobs")
        assert tuple(row) == ("completed", 1, None)
        assert other.lines() == []
        await connection.close()


PERMANENT = {
    "42P01": ("ALTER TABLE rxjobs.live_jobs RENAME TO gone", 'relation "rxjobs.live_jobs" does not exist'),
    "28000": ("ALTER ROLE {role} NOLOGIN", "is not permitted to log in"),
}


@pytest.mark.parametrize("code", PERMANENT)
async def test_what_does_not_pass_by_itself_ends_the_worker_and_says_why(start, connection, dsn, code):
    """As procrastinate#1425 (row 25): only what passes is tried again for ever."""
    role = f"r_{uuid4().hex}"
    await connection.execute(f"CREATE ROLE {role} SUPERUSER LOGIN")
    try:
        worker = start(dsn.replace("://postgres@", f"://{role}@"), rxjobs_max_restarts=1, rxjobs_shutdown_grace=1, **FAST)
        await fill(connection, "work", 1)
        await until(lambda: worker.lines("end"))
        sql, reason = PERMANENT[code]
        await connection.execute(sql.format(role=role))
        await connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", role)
        assert await worker.ended() == 1
        assert "stopped: pipeline" in worker.log
        assert reason in worker.log
    finally:
        await connection.execute(f"DROP ROLE {role}")


async def test_a_read_only_server_is_waited_for(start):
    """F6, and as graphile#449 (row 34)."""
    async with PrivatePostgres(**SMALL) as postgres:
        await filled(postgres.dsn, 100, 0.05)
        connection = await asyncpg.connect(postgres.dsn)
        await connection.execute("ALTER SYSTEM SET default_transaction_read_only = on; ")
        worker = start(postgres.dsn, **FAST)
        await until(lambda: len(worker.lines("start")) > 10)
        await connection.execute("SELECT pg_reload_conf()")
        await until(lambda: "read-only" in worker.log)
        await asyncio.sleep(1)  # the outage: each question of a second is refused
        await connection.execute("SET default_transaction_read_only = off")
        await connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
        await connection.execute("SELECT pg_reload_conf()")
        await until(lambda: connection.fetchval("SELECT count(*) = 100 FROM rxjobs.finished_jobs WHERE state = 'completed'"))
        await connection.close()
        exactly_once([worker], 100)


async def test_a_listener_that_is_cut_off_comes_back_and_misses_nothing(dsn):
    app = rj.App(dsn, migrate=True, poll_seconds=600)
    ran = []

    @app.job
    async def work(n: int) -> None:
        ran.append(n)

    wakes = []
    app.woken.subscribe(wakes.append)
    listeners = f"SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND {LISTENS}"
    connection = await asyncpg.connect(dsn)
    async with app.running():
        for round_ in range(3):
            await until(lambda round_=round_: wakes.count(None) == round_ + 1)  # it listens
            await connection.execute(f"SELECT pg_terminate_backend(pid) FROM ({listeners}) AS listening")
            for n in range(10):  # some of them while nobody listens
                await work.enqueue(10 * round_ + n)
                await asyncio.sleep(0.01)
            await until(lambda round_=round_: len(ran) == 10 * round_ + 10)
        await until(lambda: wakes.count(None) == 4)
        await work.enqueue(30)
        await until(lambda: 30 in ran)
    await connection.close()
    assert sorted(ran) == list(range(31))


async def test_junk_notifications_change_nothing(dsn, caplog):
    app = rj.App(dsn, migrate=True, poll_seconds=600)
    ran = []

    @app.job
    async def work(n: int) -> None:
        ran.append(n)

    wakes = []
    app.woken.subscribe(wakes.append)
    connection = await asyncpg.connect(dsn)
    async with app.running():
        await until(lambda: wakes)  # it listens
        for junk in ("", "x" * 7_999, "default\x01", '{"pause": "default"}', "défaut"):
            await connection.execute("SELECT pg_notify('rxjobs', $1)", junk)
        await work.enqueue(1)
        await until(lambda: ran == [1])
    await connection.close()
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


async def test_without_notify_every_job_starts_within_two_polls(dsn):
    poll = 1.0
    app = rj.App(dsn, migrate=True, notify=False, poll_seconds=poll)

    @app.job
    async def work() -> None: ...

    async with app.running():
        await until(lambda: work.enqueue())
        await until(lambda: completed(app, 1))
        for _ in range(3):
            await app.enqueue_many([work.new() for _ in range(100)])
            await asyncio.sleep(0.4)
        await app.enqueue_many([work.options(delay=0.5).new() for _ in range(10)])
        await until(lambda: completed(app, 311))
    async with app:
        connection = await asyncpg.connect(dsn)
        late = await connection.fetchval(
            "SELECT extract(epoch FROM max(attempted_at - scheduled_at))::float8 FROM rxjobs.finished_jobs"
        )
        await connection.close()
    assert late < 2 * poll


async def completed(app, count):
    return await app.jobs.count() == {"completed": count}
