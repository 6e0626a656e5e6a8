"""Two worker processes on one queue, and the death of one."""

import asyncio
import json
import signal
import time
from collections import Counter
from contextlib import asynccontextmanager

import pytest

import rxjobs as rj
from rxjobs import events, node
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
    await until(lambda: connection.fetchval(done))
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
            assert expiry <= at < killed + 3 + 0.5 + 10  # lease, interval, and a machine that is busy
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


def an_app(dsn, *names):
    """An app that knows these job types, and what it tells of jobs that nobody takes."""
    app = rj.App(dsn, lease_seconds=3, heartbeat_seconds=0.5, leader_seconds=0.9, poll_seconds=0.3)
    told: list[events.Event] = []
    kinds = events.JobsUnroutable, events.JobsRoutable, events.QueueUnserved, events.QueueServed
    app.events.subscribe(lambda event: told.append(event) if isinstance(event, kinds) else None)
    for name in names:

        @app.job(name=name)
        async def run(seconds: float = 0.0) -> None: ...

    return app, told


async def test_jobs_of_a_type_that_only_new_nodes_know_wait_for_them_and_are_told_of(connection, dsn, monkeypatch):
    """F32, and as taskiq#569 (row 65): an old node A, jobs of a new type, at last a new node B."""
    monkeypatch.setattr(node, "UNSERVED_SECONDS", 0.2)
    old, told = an_app(dsn, "work")
    async with old.running():
        await fill(connection, "of_tomorrow", 1_000)
        await fill(connection, "work", 50)
        await until(lambda: connection.fetchval("SELECT count(*) = 50 FROM rxjobs.finished_jobs"))
        await asyncio.sleep(1.0)  # looked for five times, and not told
        assert told == []  # nobody has waited for long
        await connection.execute("UPDATE rxjobs.live_jobs SET scheduled_at = now() - interval '6 minutes'")
        await until(lambda: told)
        assert (told[0].name, told[0].type, told[0].queue, told[0].count) == ("job.unroutable", "of_tomorrow", "default", 1_000)
        waiting = "SELECT count(*) = 1000 FROM rxjobs.live_jobs WHERE state = 'available' AND attempt = 0 AND node IS NULL"
        assert await connection.fetchval(waiting)
        new, _ = an_app(dsn, "work", "of_tomorrow")
        async with new.running():
            await until(lambda: connection.fetchval("SELECT count(*) = 1050 FROM rxjobs.finished_jobs WHERE attempt = 1"))
            await until(lambda: len(told) > 1)
        assert [event.name for event in told] == ["job.unroutable", "job.routable"]
        await fill(connection, "of_tomorrow", 1, args={})
        await connection.execute("UPDATE rxjobs.live_jobs SET queue = 'nobody', scheduled_at = now() - interval '6 minutes'")
        await until(lambda: len(told) > 2)
    assert (told[2].name, told[2].queue, told[2].count) == ("queue.unserved", "nobody", 1)


@asynccontextmanager
async def under_load(connection, dsn):
    """Two nodes that work off jobs all the time; after it, each job has run once."""
    apps = [an_app(dsn, "work")[0] for _ in range(2)]
    count, loading = 0, True

    async def load():
        nonlocal count
        while loading:
            await apps[0].enqueue_many([apps[0].definition("work").new() for _ in range(20)])
            count += 20
            await asyncio.sleep(0.02)

    async with apps[0].running(), apps[1].running():
        loader = asyncio.ensure_future(load())
        await until(lambda: connection.fetchval("SELECT count(*) > 200 FROM rxjobs.finished_jobs"))
        yield
        await asyncio.sleep(0.5)
        loading = False
        await loader
        await until(lambda: connection.fetchval("SELECT count(*) = 0 FROM rxjobs.live_jobs"))
    rows = await connection.fetch("SELECT state::text, attempt, errors, count(*) FROM rxjobs.finished_jobs GROUP BY 1, 2, 3")
    assert [tuple(row) for row in rows] == [("completed", 1, None, count)]


async def test_a_schema_that_is_added_to_under_load_fails_no_job(connection, dsn, caplog):
    """F33, and as asyncpg#72 (row 72): columns come and go while two nodes and an enqueuer work."""
    async with under_load(connection, dsn):
        await connection.execute("SET lock_timeout = '3s'")
        for table in ("live_jobs", "finished_jobs", "nodes", "leaders"):
            await connection.execute(f"ALTER TABLE rxjobs.{table} ADD COLUMN later integer")
            await connection.execute(f"ALTER TABLE rxjobs.{table} ADD COLUMN latest text NOT NULL DEFAULT 'x'")
            await asyncio.sleep(0.2)
        await connection.execute("INSERT INTO rxjobs.migrations (version, name) VALUES (999, 'later')")
        for table in ("live_jobs", "finished_jobs", "nodes", "leaders"):
            await connection.execute(f"ALTER TABLE rxjobs.{table} DROP COLUMN later, DROP COLUMN latest")
    assert [record.message for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


async def test_an_index_that_is_dropped_and_made_anew_under_load_fails_no_job(connection, dsn, caplog):
    """As proliferate#702 (row 73): plans that were made with it are made anew."""
    async with under_load(connection, dsn):
        for index in ("live_jobs_ready", "live_jobs_pending", "finished_jobs_dead"):
            definition = await connection.fetchval("SELECT indexdef FROM pg_indexes WHERE indexname = $1", index)
            await connection.execute(f"DROP INDEX CONCURRENTLY rxjobs.{index}")
            await asyncio.sleep(0.2)
            await connection.execute(definition.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY"))
            await connection.execute(f"REINDEX INDEX CONCURRENTLY rxjobs.{index}")
    assert [record.message for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


async def test_an_old_node_may_begin_on_a_schema_that_was_added_to_and_not_on_one_that_changed(connection, dsn):
    """F33."""
    await connection.execute("INSERT INTO rxjobs.migrations (version, name) VALUES (999, 'added to')")
    app, _ = an_app(dsn, "work")
    async with app.running():
        await app.definition("work").enqueue()
        await until(lambda: connection.fetchval("SELECT count(*) = 1 FROM rxjobs.finished_jobs"))
    await connection.execute("INSERT INTO rxjobs.migrations (version, name) VALUES (1000, 'changed')")
    with pytest.raises(rj.RxJobsError, match=r"version 1000, of a newer rxjobs.*upgrade rxjobs on this node"):
        await app.__aenter__()
