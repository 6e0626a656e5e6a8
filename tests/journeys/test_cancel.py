"""Jobs that run are cancelled from anywhere, whichever node they run on."""

import asyncio
import time

import pytest

import rxjobs as rj
from rxjobs import events
from tests.waiting import until

FAST = {"rxjobs_lease_seconds": 3, "rxjobs_heartbeat_seconds": 0.5, "rxjobs_rescue_seconds": 0.5, "rxjobs_poll_seconds": 0.5}
STATE = "SELECT state::text FROM rxjobs.jobs WHERE id = $1"
ERRORS = "SELECT jsonb_agg(error -> 'type')::text FROM rxjobs.jobs, jsonb_array_elements(errors) AS error WHERE id = $1"
QUICK = {"poll_seconds": 0.3, "heartbeat_seconds": 0.5}


def client(dsn):
    """An app that runs nothing, and knows the types of the worker."""
    app = rj.App(dsn, **QUICK)

    @app.job(name="work")
    async def work(seconds: float = 0.0) -> None: ...

    app.job(name="watched")(work.function)
    app.job(name="thread")(work.function)
    return app


@pytest.mark.parametrize("notify", ["on", "off"])
async def test_what_runs_on_another_node_is_stopped_and_then_cancelled(connection, dsn, start, notify):
    workers = [start(dsn, **FAST, rxjobs_notify=notify) for _ in range(2)]
    async with client(dsn) as app:
        jobs = [await app.definitions[name].enqueue(60) for name in ("work", "watched") * 4]
        await until(lambda: sum(len(worker.lines("start")) for worker in workers) == len(jobs))
        assert await app.jobs.cancel([job.id for job in jobs[:-2]]) == 6
        for job in jobs[:-2]:
            with pytest.raises(rj.JobFailed, match=r"was cancelled: rxjobs.Cancel: cancelled by request"):
                await job.result(timeout=30)
        cancelled = {id_ for worker in workers for id_ in worker.ids("cancelled")}
        assert cancelled == {job.id for job in jobs[:-2]}
        assert [await connection.fetchval(STATE, job.id) for job in jobs[-2:]] == ["executing", "executing"]
        assert await app.jobs.cancel(state="executing", queue="default") == 2
        await until(lambda: connection.fetchval("SELECT count(*) = 8 FROM rxjobs.finished_jobs WHERE state = 'cancelled'"))
    assert not any(worker.lines("end") for worker in workers)


async def test_a_job_that_was_to_be_cancelled_when_its_node_died_is_cancelled_by_the_rescue(connection, dsn, start):
    doomed = start(dsn, **FAST)
    async with client(dsn) as app:
        kept, cancelled = [await app.definitions["thread"].enqueue(60) for _ in range(2)]
        await until(lambda: len(doomed.lines("start")) == 2)
        await app.jobs.cancel(cancelled.id)  # its thread does not look
        await until(lambda: connection.fetchval("SELECT cancel_at IS NOT NULL FROM rxjobs.live_jobs WHERE id = $1", cancelled.id))
        doomed.process.kill()
        other = start(dsn, **FAST)
        with pytest.raises(rj.JobFailed, match="was cancelled"):
            await cancelled.result(timeout=30)
        assert await connection.fetchval(ERRORS, cancelled.id) == '["rxjobs.NodeLost", "rxjobs.Cancel"]'
        await until(lambda: other.ids("start") == [kept.id])


def an_app(dsn):
    app = rj.App(dsn, migrate=True, **QUICK)
    seen: dict[str, list[object]] = {"ended": []}
    begun = asyncio.Event()

    @app.job(name="sleeps", unique=rj.Unique())
    async def sleeps(seconds: float) -> None:
        begun.set()
        try:
            await asyncio.sleep(seconds)
        finally:
            seen["ended"].append(seconds)

    @app.job(name="swallows")
    async def swallows(seconds: float) -> str:
        begun.set()
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
            return "never mind"
        return "slept"

    app.job(name="child", executor=rj.in_processes(1))(time_to_sleep)
    return app, seen, begun


def time_to_sleep(seconds: float) -> None:
    time.sleep(seconds)


async def test_a_running_job_keeps_its_unique_key_until_it_has_ended(dsn, connection):
    app, _, begun = an_app(dsn)
    async with app.running() as running:
        stops = []
        running.events.subscribe(lambda event: stops.append(event) if isinstance(event, events.JobStopped) else None)
        swallows = await app.definitions["swallows"].options(unique=rj.Unique()).enqueue(60)
        await begun.wait()
        await app.jobs.cancel(swallows.id)
        await until(lambda: connection.fetchval("SELECT cancel_at IS NOT NULL FROM rxjobs.live_jobs WHERE id = $1", swallows.id))
        assert (await app.definitions["swallows"].options(unique=rj.Unique()).enqueue(60)).duplicate
        with pytest.raises(rj.JobFailed, match="was cancelled"):
            await swallows.result(timeout=20)
        (stop,) = stops
        assert stop.outcome == rj.Cancel("cancelled by request")
        again = await app.definitions["swallows"].options(unique=rj.Unique()).enqueue(60)
        assert not again.duplicate
        await app.jobs.cancel(again.id)
        with pytest.raises(rj.JobFailed):
            await again.result(timeout=20)


async def test_a_child_process_is_killed(dsn):
    app, _, _ = an_app(dsn)
    async with app.running():
        job = await app.definitions["child"].enqueue(600)
        await until(lambda: app.jobs.list(state="executing"))
        await app.jobs.cancel(job.id)
        with pytest.raises(rj.JobFailed, match="was cancelled"):
            await job.result(timeout=30)


async def test_what_waits_for_its_turn_in_a_pipeline_is_cancelled_and_never_begins(dsn):
    app, seen, begun = an_app(dsn)
    buffered = app.source("default", max_demand=10).pipe(rj.execute(concurrency=1), rj.ack())
    async with app.running(buffered):
        first, second = [await app.definitions["sleeps"].enqueue(seconds) for seconds in (60, 61)]
        await begun.wait()
        await until(lambda: app.jobs.count(state="executing"))
        await until(lambda: _counts(app, executing=2))
        await app.jobs.cancel(second.id)
        with pytest.raises(rj.JobFailed, match="was cancelled"):
            await second.result(timeout=20)
        assert (await app.jobs.get(first.id)).state == "executing"
        await app.jobs.cancel(first.id)
        with pytest.raises(rj.JobFailed, match="was cancelled"):
            await first.result(timeout=20)
        assert len(seen["ended"]) == 1


async def test_a_cancelled_job_may_be_retried_and_runs(dsn):
    app, _, begun = an_app(dsn)
    async with app.running():
        job = await app.definitions["swallows"].enqueue(0.5)
        await begun.wait()
        await app.jobs.cancel(job.id)
        with pytest.raises(rj.JobFailed):
            await job.result(timeout=20)
        await app.jobs.retry(job.id)
        assert await job.result(timeout=20) is None
        assert (await app.jobs.get(job.id)).state == "completed"


async def test_stopping_a_node_cancels_what_was_to_be(dsn, connection):
    app, _, begun = an_app(dsn)
    async with app.running():
        job = await app.definitions["sleeps"].enqueue(60)
        await begun.wait()
        await connection.execute("UPDATE rxjobs.live_jobs SET cancel_at = now() WHERE id = $1", job.id)
    assert await connection.fetchval(STATE, job.id) == "cancelled"


async def test_a_wish_that_comes_in_the_very_moment_of_an_ack_is_not_lost(dsn, connection):
    app, _, _ = an_app(dsn)
    begun, go_on, told = asyncio.Event(), asyncio.Event(), []

    @app.job(name="again")
    async def again() -> None:
        begun.set()
        await go_on.wait()
        raise rj.Retry(delay=0)

    async with app.running() as running:
        running.events.subscribe(told.append)
        job = await again.enqueue()
        await begun.wait()
        async with connection.transaction():
            await connection.execute("UPDATE rxjobs.live_jobs SET cancel_at = now()")
            go_on.set()
            await until(lambda: connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))
        with pytest.raises(rj.JobFailed, match="was cancelled"):
            await job.result(timeout=20)
        assert (await app.jobs.get(job.id)).attempt == 1
        assert not [event for event in told if isinstance(event, events.JobStale)]


async def test_one_job_of_a_list_is_cancelled_and_the_others_run_to_their_end(dsn):
    """One that runs has the wish shown to its handler; one whose list waits for its turn is never given to it."""
    app = rj.App(dsn, migrate=True)
    begun, go_on, given = asyncio.Event(), asyncio.Event(), []

    @app.job(name="work", unique=rj.Unique(by=("args.n",)))
    async def work(n: int) -> None: ...

    async def handle(jobs: list[rj.Job]) -> None:
        given.append([job.args["n"] for job in jobs])
        begun.set()
        await until(lambda: any(job.cancelled for job in jobs) or len(given) > 1)
        await go_on.wait()

    lists = app.source("default", max_demand=4).pipe(rj.buffer(2, timespan=None), rj.execute_batch(handle), rj.ack())
    async with app.running(lists):
        running, other, waiting, late = await app.enqueue_many([work.new(n) for n in range(4)])
        await begun.wait()
        await until(lambda: _counts(app, executing=4))
        await app.jobs.cancel([running.id, waiting.id])
        with pytest.raises(rj.JobFailed, match="was cancelled"):
            await waiting.result(timeout=20)
        assert (await app.jobs.get(running.id)).state == "executing"
        assert (await work.enqueue(0)).duplicate
        go_on.set()
        with pytest.raises(rj.JobFailed, match="was cancelled"):
            await running.result(timeout=20)
        await until(lambda: _counts(app, completed=2))
        assert {(await app.jobs.get(one.id)).state for one in (other, late)} == {"completed"}
    assert given == [[0, 1], [3]]


async def _counts(app, **states):
    found = await app.jobs.count()
    return all(found.get(state) == count for state, count in states.items())
