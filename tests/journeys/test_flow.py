"""Many jobs through long pipelines: each is acked exactly once, and no more are held than was agreed."""

import asyncio
from collections import Counter

import reactivex as rx

import rxjobs as rj
from rxjobs.testing import fill
from tests.journeys.recording import Recording
from tests.waiting import until

COUNT = 20_000


async def finished(connection):
    rows = await connection.fetch("SELECT state::text, attempt, count(*) FROM rxjobs.finished_jobs GROUP BY 1, 2")
    return {(row["state"], row["attempt"]): row["count"] for row in rows}


async def left(connection):
    return await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs")


async def test_twenty_thousand_jobs_go_through_a_long_pipeline_once_each(dsn, connection):
    app, ran = rj.App(dsn), Counter()

    @app.job(name="work")
    async def work(n: int) -> None:
        job = rj.current_job()
        assert job.assigns == {"double": 2 * n}
        ran[n] += 1
        if n % 10 == 3:
            await asyncio.sleep(0)

    async def double(job):
        if job.args["n"] % 7 == 0:
            await asyncio.sleep(0)
        return {"double": 2 * job.args["n"]}

    await fill(connection, "work", COUNT, args_sql="json_build_object('n', n)")
    source = Recording(rj.PostgresSource(app, "default"))
    pipeline = rj.pull(source, max_demand=600).pipe(
        rj.filter(lambda job: job.args["n"] % 4, otherwise=rj.Cancel("every fourth")),
        rj.enrich(double, concurrency=20),
        rj.buffer(50, 0.05),
        rj.execute(concurrency=100),
        rj.ack(),
    )
    async with app.running(pipeline):
        await until(lambda: left_is_none(connection))
        await until(lambda: not source.held)
    wanted = [n for n in range(COUNT) if n % 4]
    assert ran == Counter(wanted)
    assert await finished(connection) == {("completed", 1): len(wanted), ("cancelled", 1): COUNT - len(wanted)}
    assert max(Counter(source.settled).values()) == 1
    assert len(source.settled) == COUNT
    kept_demand(source, 600)


async def left_is_none(connection):
    return not await left(connection)


def kept_demand(source, max_demand):
    assert 0 < source.most_held <= max_demand
    assert source.most_fetching == 1
    assert all(n <= max_demand - held for n, held in source.asked)
    assert all(held <= max_demand // 2 for _, held in source.asked)


async def test_batches_settle_each_of_their_jobs_by_itself(dsn, connection):
    app, batches = rj.App(dsn), []

    @app.job(name="work")
    async def work(n: int) -> None: ...

    async def handle(jobs):
        batches.append(len(jobs))
        place = len(batches)
        await asyncio.sleep(0)
        if place % 3 == 0:
            return None
        if place % 3 == 1:
            return [rj.Complete() if job.args["n"] % 2 else rj.Cancel("even") for job in jobs]
        return {job.id: rj.Discard("even") for job in jobs if job.args["n"] % 2 == 0}

    await fill(connection, "work", 5_000, args_sql="json_build_object('n', n)")
    source = Recording(rj.PostgresSource(app, "default"))
    pipeline = rj.pull(source, max_demand=300).pipe(rj.buffer(40, 0.05), rj.execute_batch(handle, concurrency=3), rj.ack())
    async with app.running(pipeline):
        await until(lambda: left_is_none(connection))
        await until(lambda: not source.held)
    assert sum(batches) == 5_000
    assert max(batches) == 40
    states = Counter()
    for (state, attempt), number in (await finished(connection)).items():
        assert attempt == 1
        states[state] += number
    assert states.total() == 5_000
    assert states["cancelled"] > 500
    assert states["discarded"] > 500
    assert states == {state: list(source.outcomes.values()).count(name) for state, name in STATES.items()}
    kept_demand(source, 300)


STATES = {"completed": "Complete", "cancelled": "Cancel", "discarded": "Discard"}


async def test_a_batch_that_raises_fails_all_of_it_by_the_retry_rule(dsn, connection):
    app = rj.App(dsn)

    @app.job(name="work", breaker=rj.Breaker(fail_max=10))  # three batches are three failures, not thirty
    async def work() -> None: ...

    def handle(jobs):
        raise ZeroDivisionError("all of it")

    await fill(connection, "work", 30)
    await connection.execute("UPDATE rxjobs.live_jobs SET max_attempts = 1 WHERE id % 2 = 0")
    pipeline = app.source("default", max_demand=100).pipe(rj.buffer(10, 0.05), rj.execute_batch(handle), rj.ack())
    async with app.running(pipeline):
        await until(lambda: is_count(app, {"retryable": 15, "discarded": 15}))
        for job in await app.jobs.list():
            (error,) = job.errors
            assert (error["attempt"], error["type"], error["message"]) == (1, "ZeroDivisionError", "all of it")
            assert "handle" in error["traceback"]
            assert error["duration"] >= 0


async def is_count(app, counts):
    return await app.jobs.count() == counts


async def test_two_queues_flow_into_one_pipeline(dsn, connection):
    app, ran = rj.App(dsn), Counter()

    @app.job(name="work")
    async def work(n: int) -> None:
        ran[rj.current_job().queue] += 1
        await asyncio.sleep(0.001)

    await fill(connection, "work", 2_000, queue="large", args={"n": 1})
    await fill(connection, "work", 100, queue="small", args={"n": 1})
    seen = {}

    def note(job):
        seen.setdefault(job.queue, []).append(sum(map(len, seen.values())))
        return True

    pipeline = rx.merge(app.source("large", max_demand=50), app.source("small", max_demand=50)).pipe(
        rj.filter(note), rj.execute(concurrency=20), rj.ack()
    )
    async with app.running(pipeline):
        await until(lambda: left_is_none(connection))
    assert ran == {"large": 2_000, "small": 100}
    # the small queue's jobs come between those of the large one, as its own demand lets them
    assert max(seen["small"]) < 1_000


async def test_a_job_that_a_foreign_operator_drops_goes_back_to_its_queue_and_the_rest_runs(dsn, connection, caplog, monkeypatch):
    from reactivex import operators as ops

    monkeypatch.setattr("rxjobs.hold.DROPPED_DELAY", 3600.0)
    app = rj.App(dsn)

    @app.job(name="work")
    async def work(n: int) -> None: ...

    await fill(connection, "work", 200, args_sql="json_build_object('n', n)")
    pipeline = app.source("default", max_demand=20).pipe(ops.filter(lambda job: job.args["n"] % 2 == 0), rj.execute(), rj.ack())
    async with app.running(pipeline):
        await until(lambda: is_count(app, {"completed": 100, "scheduled": 100}))
    assert await connection.fetchval("SELECT max(attempt) FROM rxjobs.live_jobs") == 0
    assert "was dropped by an operator of its pipeline" in caplog.text
