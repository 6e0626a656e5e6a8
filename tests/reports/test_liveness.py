"""What befell others when a worker died, was slow to write down how jobs ended, or lost its connections. See docs/faults.md."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.testing import fill
from tests.journeys.conftest import Worker
from tests.listening import LISTENS
from tests.waiting import until

FAST: dict[str, Any] = {"lease_seconds": 3, "heartbeat_seconds": 0.5, "rescue_seconds": 0.5, "poll_seconds": 0.5}
BUSY = 15.0
"""Seconds that a machine with much else to do may add: what is held against them would else take minutes, or for ever."""


@pytest.fixture
async def connection(dsn):
    await rj.App(dsn).migrate()
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


@pytest.fixture
def start(dsn, tmp_path):
    """Start worker processes; what is left of them is killed in the end."""
    workers: list[Worker] = []

    def start() -> Worker:
        environ = {"RXJOBS_DSN": dsn} | {f"RXJOBS_{name.upper()}": str(value) for name, value in FAST.items()}
        workers.append(Worker(tmp_path, len(workers), environ))
        return workers[-1]

    yield start
    for worker in workers:
        worker.process.kill()
        worker.process.wait()


async def server_is_old_enough(connection: Any) -> None:
    """For a lease after its start a server takes nobody for dead."""
    await until(lambda: connection.fetchval("SELECT now() - pg_postmaster_start_time() > interval '3 seconds'"))


async def test_a_process_that_is_killed_while_it_leads_has_its_jobs_done_by_one_that_came_later(connection, start):
    """As procrastinate#307, pgqueuer#475, graphile-worker#204, #222: what a killed worker had was nobody's from then on.

    And as procrastinate#1408: it looked after the dead itself, and nobody did so after it. Here that is no job that can be stuck.
    """
    await server_is_old_enough(connection)
    doomed = start()
    await fill(connection, "work", 10, args={"seconds": 600.0})
    await until(lambda: len(doomed.lines("start")) == 10)
    leads = "SELECT count(*) = 1 FROM rxjobs.leaders JOIN rxjobs.nodes ON id = node WHERE pid = $1 AND leaders.expires_at > now()"
    await until(lambda: connection.fetchval(leads, doomed.process.pid))
    doomed.process.kill()
    killed = time.monotonic()
    await connection.execute("""UPDATE rxjobs.live_jobs SET args = '{"seconds": 0.0}'""")
    other = start()
    await until(lambda: connection.fetchval("SELECT count(*) = 10 FROM rxjobs.finished_jobs WHERE state = 'completed'"))
    took = time.monotonic() - killed
    print(f"done {took:.1f} s after the kill, with a lease of 3 s and the start of a process")
    assert took < 3 + 0.5 + BUSY
    assert sorted(other.ids("end")) == sorted(doomed.ids("start"))
    assert {row["type"] for row in await connection.fetch("SELECT DISTINCT type FROM rxjobs.jobs")} == {"work"}


async def test_when_a_job_is_rescued_does_not_depend_on_how_long_others_may_take(connection, dsn):
    """As arq#343, #402, #407: a lost job was waited for as long as the slowest of all job types may run."""
    await server_is_old_enough(connection)
    app = rj.App(dsn, node="living", **FAST)
    ran = list[str]()

    @app.job(name="quick", timeout=3)
    async def quick() -> None:
        ran.append("quick")

    @app.job(name="slow", timeout=3600)
    async def slow() -> None:
        ran.append("slow")

    await fill(connection, "quick", 5)
    await fill(connection, "slow", 5)
    async with app:
        dead = uuid4()  # it claims, and is never heard of again
        await app.store.take_lease(dead, "dead", 0, 3)
        assert len(await app.store.fetch_jobs("default", 10, ["quick", "slow"], dead)) == 10
        began = time.monotonic()
        async with app.running():
            await until(lambda: len(ran) == 10)
            took = time.monotonic() - began
    print(f"both done {took:.1f} s after the claim, with a lease of 3 s")
    assert Counter(ran) == {"quick": 5, "slow": 5}
    assert took < 3 + 0.5 + BUSY


async def test_outcomes_that_take_longer_than_a_lease_to_write_down_cost_no_run_and_hold_claims_back(connection, dsn):
    """As river#995, #917: the database was slow to take results, leases ran out over it, and what was done was run again."""
    await server_is_old_enough(connection)
    apps = [rj.App(dsn, node=f"node-{number}", **FAST) for number in range(2)]
    runs = Counter[int]()

    async def work(n: int) -> None:
        runs[n] += 1

    pipelines = []
    for app in apps:
        app.job(name="work")(work)
        pipelines.append(app.source("default", max_demand=40).pipe(rj.execute(concurrency=20), rj.ack()))
    await fill(connection, "work", 400, args_sql="jsonb_build_object('n', n)")
    locking = connection.transaction()
    await locking.start()
    await connection.execute("LOCK TABLE rxjobs.finished_jobs")  # to claim is as quick as ever, to write an outcome is not
    async with apps[0].running(pipelines[0]), apps[1].running(pipelines[1]):
        await until(lambda: len(runs) == 80)
        await asyncio.sleep(2 * FAST["lease_seconds"])  # for so long the outcomes wait, which is what is reported
        assert len(runs) == 80  # both hold as many as they may, and none of them is acked
        await locking.commit()
        await until(lambda: len(runs) == 400)
        await until(lambda: connection.fetchval("SELECT count(*) = 400 FROM rxjobs.finished_jobs"))
    assert set(runs.values()) == {1}
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.jobs WHERE state <> 'completed' OR attempt <> 1") == 0


async def test_connections_that_are_ended_under_running_jobs_cost_no_run_and_there_are_no_locks_to_lose(connection, dsn):
    """As good_job#989: the connection that held a job's lock was dropped, and the job ran a second time beside the first.

    As que#241, #309: workers whose locks had gone with their connection stopped without a word. And as asyncpg#140, #221: what
    was set up on one connection was not on the next, so that values arrived otherwise.
    """
    apps = [rj.App(dsn, node=f"node-{number}", **FAST) for number in range(2)]
    runs, nested = Counter[int](), {"deep": [1, 2.5, None, {"ü": "\U0001f600"}], "big": 2**70}
    arrived = list[bool]()

    async def work(n: int, value: dict) -> None:  # type: ignore[type-arg]
        runs[n] += 1
        arrived.append(value == nested)
        await asyncio.sleep(1.0 if n % 10 == 0 else 0.02)

    for app in apps:
        app.job(name="work")(work)
    async with apps[0].running(), apps[1].running():
        news = [apps[0].definition("work").new(n=n, value=nested) for n in range(1_000)]
        await apps[0].enqueue_many(news)
        for part in range(3):
            await until(lambda: len(runs) > 200 * (part + 1))  # noqa: B023
            assert await connection.fetchval(ADVISORY_LOCKS) == 0
            await until(lambda: connection.fetchval(f"SELECT count(*) >= 4 FROM pg_stat_activity WHERE {OURS}"))
            assert await connection.fetchval(END_ALL) >= 4  # a connection each to listen and to renew, and what the pools have
        await until(lambda: connection.fetchval("SELECT count(*) = 1000 FROM rxjobs.finished_jobs WHERE state = 'completed'"))
        await until(lambda: connection.fetchval(LISTENERS))  # both listen again, and ask there what there is to do
        ended = time.monotonic()
        await apps[1].enqueue(apps[1].definition("work").new(n=1_000, value=nested))
        await until(lambda: runs[1_000] == 1)
        print(f"a job ran {time.monotonic() - ended:.2f} s after it was enqueued")
    assert set(runs.values()) == {1}
    assert all(arrived)
    assert await connection.fetchval("SELECT max(attempt) FROM rxjobs.jobs") == 1


OURS = "application_name = 'rxjobs' AND datname = current_database()"
END_ALL = f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {OURS}"
LISTENERS = f"SELECT count(*) >= 2 FROM pg_stat_activity WHERE {LISTENS} AND {OURS}"
ADVISORY_LOCKS = (
    "SELECT count(*) FROM pg_locks JOIN pg_database ON oid = database WHERE locktype = 'advisory' AND datname = current_database()"
)


async def test_to_cancel_a_job_that_is_not_there_harms_none_that_gets_its_id_later(connection, dsn):
    """As arq#485: to abort an unknown id left something behind that ended a new job of that id."""
    app = rj.App(dsn, **FAST)
    ran = list[int]()

    @app.job
    async def work() -> None:
        ran.append(rj.current_job().id)

    async with app.running():
        first = await work.enqueue()
        await until(lambda: ran == [first.id])
        next_ids = [first.id + n for n in range(1, 4)]
        assert await app.jobs.cancel(next_ids) == 0
        later = [await work.options(delay=0.1).enqueue() for _ in next_ids]
        assert [enqueued.id for enqueued in later] == next_ids
        await until(lambda: sorted(ran) == [first.id, *next_ids])
        await until(lambda: connection.fetchval("SELECT count(*) = 4 FROM rxjobs.finished_jobs WHERE state = 'completed'"))
