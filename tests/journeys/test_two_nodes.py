"""Two worker processes on one queue, and the death of one."""

import json
import signal
import time
from collections import Counter

from rxjobs.testing import fill
from tests.waiting import until

FAST = {"rxjobs_lease_seconds": 3, "rxjobs_heartbeat_seconds": 0.5, "rxjobs_rescue_seconds": 0.5, "rxjobs_poll_seconds": 0.5}


async def test_each_job_runs_once(connection, dsn, start):
    await fill(connection, "work", 2_000, args={"seconds": 0.01})
    workers = [start(dsn, **FAST) for _ in range(2)]
    await until(
        lambda: connection.fetchval("SELECT count(*) = 2000 FROM rxjobs.finished_jobs WHERE state = 'completed' AND attempt = 1")
    )
    started = [worker.ids("start") for worker in workers]
    assert len(started[0]) + len(started[1]) == 2_000
    assert len({*started[0], *started[1]}) == 2_000
    assert min(map(len, started)) > 100


async def test_the_jobs_of_a_killed_worker_are_rescued_when_its_lease_is_over_and_not_before(connection, dsn, start):
    await until(lambda: connection.fetchval("SELECT now() - pg_postmaster_start_time() > interval '3 seconds'"))
    doomed = start(dsn, **FAST)
    await fill(connection, "work", 10, args={"seconds": 5.0})
    await until(lambda: len(doomed.lines("start")) == 10)
    other = start(dsn, **FAST)
    await until(lambda: connection.fetchval("SELECT count(*) = 2 FROM rxjobs.nodes"))
    await fill(connection, "thread", 3, args={"seconds": 6.0})  # longer than a lease: a living node's jobs are its own
    await until(lambda: len(doomed.lines("start")) + len(other.lines("start")) == 13)
    held = await connection.fetch(
        "SELECT id FROM rxjobs.live_jobs WHERE node = (SELECT id FROM rxjobs.nodes WHERE pid = $1)", doomed.process.pid
    )
    expiry = await connection.fetchval(
        "SELECT extract(epoch FROM expires_at)::float8 FROM rxjobs.nodes WHERE pid = $1", doomed.process.pid
    )
    doomed.process.kill()
    killed = time.time()
    assert len(held) >= 10
    assert not doomed.lines("end")
    done = "SELECT count(*) = 0 FROM rxjobs.live_jobs"
    await until(lambda: connection.fetchval(done), seconds=20)
    rows = await connection.fetch("SELECT id, attempt, errors FROM rxjobs.finished_jobs WHERE state = 'completed'")
    attempts = {row["id"]: row["attempt"] for row in rows}
    assert len(attempts) == 13
    rescued = {id_ for id_, attempt in attempts.items() if attempt == 2}
    assert rescued == {row["id"] for row in held}
    for row in rows:
        if row["id"] in rescued:
            (error,) = json.loads(row["errors"])
            assert (error["attempt"], error["type"]) == (1, "rxjobs.NodeLost")
            at = await connection.fetchval("SELECT extract(epoch FROM $1::text::timestamptz)::float8", error["at"])
            assert expiry <= at < killed + 3 + 0.5 + 1.5  # lease, interval, and a machine that is busy
    assert Counter(other.ids("start")) == Counter(set(other.ids("start")))
    assert await connection.fetchval("SELECT count(*) = 1 FROM rxjobs.nodes")


async def test_a_worker_that_was_stopped_for_longer_than_its_lease_changes_nothing_when_it_wakes(connection, dsn, start):
    await until(lambda: connection.fetchval("SELECT now() - pg_postmaster_start_time() > interval '3 seconds'"))
    frozen = start(dsn, **FAST)
    await fill(connection, "work", 3, args={"seconds": 0.5})
    await until(lambda: len(frozen.lines("start")) == 3)
    frozen.process.send_signal(signal.SIGSTOP)
    other = start(dsn, **FAST)
    await until(lambda: len(other.lines("end")) == 3)
    await until(lambda: connection.fetchval("SELECT count(*) = 3 FROM rxjobs.finished_jobs"))
    before = await connection.fetch("SELECT * FROM rxjobs.jobs ORDER BY id")
    frozen.process.send_signal(signal.SIGCONT)
    await until(lambda: frozen.log.count("is not this node's any more") == 3)
    assert await connection.fetch("SELECT * FROM rxjobs.jobs ORDER BY id") == before
    assert "the lease of this node ran out" in frozen.log
    await fill(connection, "work", 500, args={"seconds": 0.02})
    await until(lambda: connection.fetchval("SELECT count(*) = 503 FROM rxjobs.finished_jobs WHERE state = 'completed'"))
    assert len(frozen.lines("end")) > 50  # it works on, as a node that has begun anew


async def test_a_blocked_event_loop_costs_neither_the_lease_nor_a_job(connection, dsn, start):
    """Heartbeats come from a thread; and an answer that the loop was too busy to read is no lost claim."""
    workers = [start(dsn, **FAST | {"rxjobs_lease_seconds": 2}) for _ in range(2)]
    await until(lambda: connection.fetchval("SELECT count(*) = 2 FROM rxjobs.nodes"))
    await fill(connection, "block", 1, args={"seconds": 6.0})
    await fill(connection, "block", 100, args={"seconds": 0.02})
    await until(
        lambda: connection.fetchval("SELECT count(*) = 101 FROM rxjobs.finished_jobs WHERE state = 'completed' AND attempt = 1")
    )
    started = [*workers[0].ids("start"), *workers[1].ids("start")]
    assert len(started) == len(set(started)) == 101
    assert "it is held up by job 1 (block)" in workers[0].log + workers[1].log
