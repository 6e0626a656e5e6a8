"""What a job costs, counted and not timed: these numbers may fall, and grow only for a reason."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.store.database import Database
from rxjobs.store.statements import statement
from rxjobs.testing import MemorySource, fill
from rxjobs.testing.watched import runs
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


HOT = ("fetch_jobs", "fetch_jobs_where", "ack_completed", "exchange_jobs", "exchange_jobs_where")
NAMES = {statement(name, "rxjobs"): name for name in HOT}
HERE = str(Path(rj.__file__).parent)
OURS, OPENTELEMETRY = (HERE, "/reactivex/"), ("/opentelemetry/",)


async def calls_of(app, name, count, packages=OURS):
    """How often each Python function of these packages is entered for so many jobs of a type."""
    calls: Counter[str] = Counter()

    def entered(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and any(package in frame.f_code.co_filename for package in packages):
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


async def test_opentelemetry_is_called_for_the_two_histograms_of_a_run_and_for_nothing_else(app):
    await calls_of(app, "noop", 100, OPENTELEMETRY)
    few, many = [(await calls_of(app, "noop", count, OPENTELEMETRY)).total() for count in (400, 1_400)]
    assert (many - few) / 1_000 < 2.1  # and a few by the batch


async def blocks_held_by(app, count):
    """How many blocks of memory more there are while so many jobs run, and when all of them are acked."""
    go, begun = asyncio.Event(), list[int]()

    @app.job(name=f"waiting-{count}")
    async def waiting(n: int) -> None:
        begun.append(n)
        await go.wait()

    source = MemorySource(made(app, f"waiting-{count}", count))
    async with runs(rj.pull(source, max_demand=count).pipe(rj.execute(concurrency=count), rj.ack())):
        gc.collect()
        before = sys.getallocatedblocks()
        await until(lambda: len(begun) == count)
        gc.collect()
        running = sys.getallocatedblocks() - before
        go.set()
        await until(lambda: len(source.settled) == count)
        source.settled.clear()
        gc.collect()
        return running, sys.getallocatedblocks() - before


async def test_a_job_in_flight_takes_so_many_blocks_of_memory_and_leaves_none(app):
    await blocks_held_by(app, 100)  # what is kept once is there
    (few, few_left), (many, many_left) = [await blocks_held_by(app, count) for count in (400, 1_400)]
    assert (many - few) / 1_000 <= 23
    assert (many_left - few_left) / 1_000 < 1


async def test_jobs_share_statements_and_commits(dsn, monkeypatch):
    """Fifty are acked and fifty claimed by one statement and commit, and there is what a node does beside it."""
    app = rj.App(dsn, migrate=True)

    @app.job(name="noop")
    async def noop(n: int = 0) -> None: ...

    await app.migrate()
    connection = await asyncpg.connect(dsn)
    await fill(connection, "noop", 5_000)
    commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    done = "SELECT count(*) = 5000 FROM rxjobs.finished_jobs"
    before = await connection.fetchval(commits)
    sent, fetch = Counter[str](), Database.fetch

    async def counted(self: Database, sql: str, *args: Any, **options: Any) -> Any:
        sent[NAMES.get(sql, "others")] += 1
        return await fetch(self, sql, *args, **options)

    monkeypatch.setattr(Database, "fetch", counted)
    async with app.running(app.source("default", max_demand=100).pipe(rj.execute(concurrency=50), rj.ack())):
        await until(lambda: connection.fetchval(done), every=0.2)
    # a session tells of its commits when it ends, if not before
    others = "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'rxjobs'"
    await until(lambda: connection.fetchval(others))
    after = await connection.fetchval(commits)
    await connection.close()
    assert after - before < 5_000 / 40 + 100
    assert sum(sent[name] for name in HOT) < 5_000 / 40  # each is one round trip
    assert sent["exchange_jobs"] + sent["exchange_jobs_where"] > 5_000 / 100


async def test_a_lone_enqueue_takes_one_statement_and_so_many_calls(dsn):
    """About 76 calls; a slow machine tells more often of what was inserted meanwhile."""
    app, calls = rj.App(dsn, migrate=True), Counter[str]()

    @app.job(name="noop")
    async def noop(n: int = 0) -> None: ...

    def entered(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HERE):
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
