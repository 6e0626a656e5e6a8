"""Limits across nodes: four worker processes, and what their jobs themselves say of when they ran."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest

import rxjobs as rj
from rxjobs.testing import fill
from tests.numbers import at_least
from tests.waiting import until

SCRIPT = Path(__file__).with_name("limited.py")
FAST = {"rxjobs_lease_seconds": 3, "rxjobs_heartbeat_seconds": 0.5, "rxjobs_rescue_seconds": 0.5, "rxjobs_poll_seconds": 0.5}
DONE = "SELECT count(*) = $1 FROM rxjobs.finished_jobs WHERE state = 'completed'"


class Run(NamedTuple):
    """One run of a job, from the first thing it did to the last."""

    id: int
    began: float
    ended: float


def runs(workers) -> list[Run]:
    began = {(line.id, line.attempt): line.at for worker in workers for line in worker.lines("start")}
    ended = {(line.id, line.attempt): line.at for worker in workers for line in worker.lines("end")}
    return [Run(key[0], at, ended[key]) for key, at in began.items() if key in ended]


def seconds_at(found: Iterable[Run]) -> dict[int, float]:
    """For how many seconds so many ran at once."""
    seconds: dict[int, float] = defaultdict(float)
    running, before = 0, None
    # who ends at the instant at which another begins has ended
    for at, change in sorted(chain.from_iterable(((run.began, 1), (run.ended, -1)) for run in found)):
        if before is not None:
            seconds[running] += at - before
        running, before = running + change, at
    return seconds


async def limited(dsn, **limits):
    async with rj.App(dsn) as app:
        app.source("default", max_demand=1)
        await app.queues.limit("default", **limits)


async def nodes_run(connection, count=4):
    await until(lambda: connection.fetchval(f"SELECT count(*) = {count} FROM rxjobs.nodes WHERE serves <> '{{}}'"))


@pytest.fixture
def four(dsn, start):
    """Start four nodes."""
    return lambda: [start(dsn, script=SCRIPT, **FAST) for _ in range(4)]


@pytest.mark.parametrize(("jobs", "surely"), [(200, 0.0), pytest.param(5_000, 0.7, marks=pytest.mark.long)])
async def test_four_nodes_run_five_jobs_at_once_and_no_more(connection, dsn, four, jobs, surely):
    """And for most of the time no fewer: on a quiet machine, and where there are enough jobs, for 95 % of it."""
    await limited(dsn, concurrency=5)
    workers = four()
    await nodes_run(connection)
    await fill(connection, "work", jobs, args={"seconds": 0.1})
    await until(lambda: connection.fetchval(DONE, jobs), seconds=jobs * 0.3)
    found = runs(workers)
    seconds = seconds_at(found)
    assert max(seconds) == 5
    assert len(found) == jobs
    at_five = seconds[5] / (max(run.ended for run in found) - min(run.began for run in found))
    print(f"at five for {at_five:.1%} of the run")
    at_least("part of the time at five", at_five, 0.95 if jobs >= 5_000 else 0.0, surely=surely)


async def test_four_nodes_run_two_jobs_of_each_tenant_at_once_and_no_more(connection, dsn, four):
    await limited(dsn, concurrency=2, by="args.tenant")
    workers = four()
    await nodes_run(connection)
    await fill(connection, "work", 120, args_sql="json_build_object('seconds', 0.1, 'tenant', 't' || n % 3)")
    await until(lambda: connection.fetchval(DONE, 120))
    tenants = dict(await connection.fetch("SELECT id, args ->> 'tenant' FROM rxjobs.finished_jobs"))
    found = runs(workers)
    for tenant in ("t0", "t1", "t2"):
        assert max(seconds_at(run for run in found if tenants[run.id] == tenant)) == 2
    assert max(seconds_at(found)) == 6


async def test_a_killed_node_gives_its_places_back_when_it_is_rescued_and_not_before(connection, dsn, start, four):
    await until(lambda: connection.fetchval("SELECT now() - pg_postmaster_start_time() > interval '3 seconds'"))
    await limited(dsn, concurrency=3)
    doomed = start(dsn, script=SCRIPT, **FAST)
    await fill(connection, "work", 3, args={"seconds": 60.0})
    await until(lambda: len(doomed.lines("start")) == 3)
    workers = four()
    await nodes_run(connection, 5)
    await fill(connection, "work", 20, args={"seconds": 0.05})
    expiry = "SELECT extract(epoch FROM expires_at)::float8 FROM rxjobs.nodes WHERE pid = $1"
    doomed.process.kill()
    ends = await connection.fetchval(expiry, doomed.process.pid)
    # the jobs of the dead one are the most urgent, and take places again
    await connection.execute("UPDATE rxjobs.live_jobs SET priority = 9 WHERE state = 'executing'")
    await until(lambda: sum(len(worker.lines("end")) for worker in workers) == 20)
    begun = [line.at for worker in workers for line in worker.lines("start")]
    assert min(begun) >= ends


async def test_no_more_jobs_start_in_a_window_than_the_rate(connection, dsn, four):
    """Over ten windows, by what rows say; windows are of PostgreSQL's clock."""
    async with rj.App(dsn) as app:
        app.source("default", max_demand=1)
        await app.queues.rate("default", 9, per=0.5)
    workers = four()
    await nodes_run(connection)
    await fill(connection, "work", 108)
    await until(lambda: connection.fetchval(DONE, 108))
    windows = await connection.fetch(
        "SELECT count(*) AS jobs FROM rxjobs.finished_jobs GROUP BY floor(extract(epoch FROM attempted_at) / 0.5)"
    )
    assert len(windows) >= 12
    assert max(row["jobs"] for row in windows) == 9
    assert len(runs(workers)) == 108


async def test_no_more_jobs_of_a_tenant_start_in_a_window_than_its_rate(connection, dsn, four):
    async with rj.App(dsn) as app:
        app.source("default", max_demand=1)
        await app.queues.rate("default", 3, per=0.5, by="args.tenant")
    workers = four()
    await nodes_run(connection)
    await fill(connection, "work", 27, args_sql="json_build_object('tenant', 't' || n % 3)")
    await until(lambda: connection.fetchval(DONE, 27))
    windows = await connection.fetch(
        "SELECT count(*) AS jobs FROM rxjobs.finished_jobs "
        "GROUP BY args ->> 'tenant', floor(extract(epoch FROM attempted_at) / 0.5)"
    )
    assert len(windows) >= 9
    assert max(row["jobs"] for row in windows) == 3
    assert len(runs(workers)) == 27


async def test_ten_jobs_of_a_tenant_do_not_wait_for_ten_thousand_of_another(connection, dsn, four):
    async with rj.App(dsn) as app:
        app.source("default", max_demand=1)
        await app.queues.share("default", by="args.tenant")
        await app.queues.limit("default", concurrency=8)
    await fill(connection, "work", 10_000, args={"tenant": "big", "seconds": 0.02})
    workers = four()
    await until(lambda: sum(len(worker.lines("end")) for worker in workers) > 50)
    await fill(connection, "work", 10, args={"tenant": "small", "seconds": 0.02})
    small = "SELECT count(*) FROM rxjobs.finished_jobs WHERE args ->> 'tenant' = 'small'"
    await until(lambda: connection.fetchval(small + " HAVING count(*) = 10"))
    first, last = await connection.fetchrow(
        "SELECT min(attempted_at), max(attempted_at) FROM rxjobs.finished_jobs WHERE args ->> 'tenant' = 'small'"
    )
    between = await connection.fetchval(
        "SELECT count(*) FROM rxjobs.finished_jobs WHERE args ->> 'tenant' = 'big' AND attempted_at BETWEEN $1 AND $2", first, last
    )
    assert between < 100
    assert await connection.fetchval("SELECT count(*) > 5000 FROM rxjobs.live_jobs")


async def test_a_limit_that_is_asked_raised_and_lifted_takes_effect_while_jobs_run(connection, dsn):
    app = rj.App(dsn, poll_seconds=0.2, notify=False)
    running, most, step = 0, Counter(), ""

    @app.job(name="work")
    async def work() -> None:
        nonlocal running
        running += 1
        most[step] = max(most[step], running)
        await asyncio.sleep(0.01)
        running -= 1

    async with app.running(app.source("default", max_demand=20).pipe(rj.execute(concurrency=20), rj.ack())):
        for step, concurrency in (("two", 2), ("six", 6), ("none", None)):  # noqa: B007 - the job reads it
            await app.queues.limit("default", concurrency=concurrency)
            await fill(connection, "work", 100)
            await until(lambda: connection.fetchval("SELECT count(*) = 0 FROM rxjobs.live_jobs"))
    assert most["two"] == 2
    assert most["six"] == 6
    assert most["none"] > 6
