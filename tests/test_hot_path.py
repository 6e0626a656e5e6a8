"""What a job costs, counted and not timed: these numbers may fall, and grow only for a reason."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.testing import fill
from tests.hot_path import through
from tests.waiting import until


@pytest.fixture
def app():
    app = rj.App("postgresql://nowhere")

    @app.job(name="noop")
    async def noop(n: int) -> None: ...

    @app.job(name="limited", timeout=60)
    async def limited(n: int) -> None: ...

    return app


def made(app, name, count):
    now, definition = datetime.now(UTC), app.definition(name)
    return [
        rj.Job(id=n, type=name, args={"n": n}, definition=definition, attempt=1, scheduled_at=now, attempted_at=now)
        for n in range(count)
    ]


async def calls_of(app, name, count):
    """How often each Python function of rxjobs or reactivex is entered for so many jobs of a type."""
    calls: Counter[str] = Counter()

    def entered(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and ("/rxjobs/" in frame.f_code.co_filename or "/reactivex/" in frame.f_code.co_filename):
            calls[frame.f_code.co_qualname] += 1

    jobs = made(app, name, count)
    gc.collect()  # what earlier tests have left is not counted
    sys.setprofile(entered)
    try:
        await through(app, jobs, rj.execute(concurrency=50), rj.ack())
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(("name", "most"), [("noop", 40), ("limited", 45)])
async def test_a_job_that_does_nothing_takes_one_task_and_so_many_calls(app, name, most):
    await calls_of(app, name, 100)  # what is done once is done
    few, many = await calls_of(app, name, 400), await calls_of(app, name, 1_400)
    each = {function: (many[function] - few[function]) / 1_000 for function in many}
    assert each["begin"] == 1
    assert each["Metrics.began"] == each["Metrics.ended"] == 1
    assert each["Metrics.hear"] == 0  # no event is made that nobody else hears
    assert each["Hold.__del__"] == 1
    assert sum(each.values()) <= most, sorted(each.items(), key=lambda one: -one[1])[:30]


async def test_jobs_share_statements_and_commits(dsn):
    """Fifty are acked and fifty claimed by one commit, and there is what a node does beside it."""
    app = rj.App(dsn, migrate=True)

    @app.job(name="noop")
    async def noop(n: int = 0) -> None: ...

    await app.migrate()
    connection = await asyncpg.connect(dsn)
    await fill(connection, "noop", 5_000)
    commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    done = "SELECT count(*) = 5000 FROM rxjobs.finished_jobs"
    before = await connection.fetchval(commits)
    async with app.running(app.source("default", max_demand=100).pipe(rj.execute(concurrency=50), rj.ack())):
        await until(lambda: connection.fetchval(done), every=0.2)
    # a session tells of its commits when it ends, if not before
    others = "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'rxjobs'"
    await until(lambda: connection.fetchval(others))
    after = await connection.fetchval(commits)
    await connection.close()
    assert after - before < 5_000 / 40 + 100


async def test_a_lone_enqueue_takes_one_statement_and_so_many_calls(dsn):
    """About 76 calls; a slow machine tells more often of what was inserted meanwhile."""
    app, calls = rj.App(dsn, migrate=True), Counter[str]()

    @app.job(name="noop")
    async def noop(n: int = 0) -> None: ...

    def entered(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "/rxjobs/" in frame.f_code.co_filename and "/tests/" not in frame.f_code.co_filename:
            calls[frame.f_code.co_qualname] += 1

    async with app:
        await noop.enqueue(n=0)
        sys.setprofile(entered)
        try:
            for n in range(100):
                await noop.enqueue(n=n)
        finally:
            sys.setprofile(None)
    assert calls["Asking._run"] <= 2 * 150  # each is begun and gone on with; a few wake the queue
    assert sum(calls.values()) / 100 <= 85, sorted(calls.items(), key=lambda one: -one[1])[:30]
