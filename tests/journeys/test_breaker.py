"""A dependency that is down, seen from the rows."""

import asyncio

import pytest

import rxjobs as rj
from rxjobs.events import BreakerClosed, BreakerHalfOpened, BreakerOpened
from tests.journeys.recording import Recording
from tests.waiting import until

FAIL_MAX, RESET = 3, 1.0


async def test_an_open_breaker_stops_its_type_costs_no_attempt_and_recovers(dsn):
    app = rj.App(dsn, migrate=True, poll_seconds=0.1)
    is_down, calls, moves = True, [], []

    @app.job(
        name="fragile",
        queue="mixed",
        breaker=rj.Breaker(fail_max=FAIL_MAX, reset_timeout=RESET, probes=1),
        backoff=lambda attempt, error: 0.0,
    )
    async def fragile(n: int) -> None:
        calls.append(n)
        await asyncio.sleep(0.01)
        if is_down:
            raise ConnectionError("the dependency is down")

    @app.job(name="sturdy", queue="mixed")
    async def sturdy(n: int) -> None: ...

    app.events.subscribe(lambda event: moves.append(type(event)) if event.name.startswith("breaker.") else None)
    source = Recording(rj.PostgresSource(app, "mixed"))
    pipeline = rj.pull(source, max_demand=10).pipe(rj.execute(concurrency=5), rj.ack())
    async with app.running(pipeline):
        await app.enqueue_many([fragile.new(n) for n in range(50)])
        await until(lambda: app.breakers()["fragile"] == "open")
        await until(lambda: not source.held)
        seen = len(calls)
        assert seen <= FAIL_MAX + 5  # those that ran already when it opened
        await app.enqueue_many([sturdy.new(n) for n in range(200)])
        await until(lambda: completed(app, "sturdy", 200))
        if app.breakers()["fragile"] == "open":
            assert len(calls) == seen
        # the attempts that were spent are those that ran, and each of them is in a row's errors
        await until(lambda: len(calls) > seen + 2)  # probes, one at a time
        is_down = False
        await until(lambda: completed(app, "fragile", 50))
        jobs = await app.jobs.list(type="fragile", limit=50)
        assert sum(job.attempt for job in jobs) == len(calls)
        assert sum(len(job.errors) for job in jobs) == len(calls) - 50
        assert {error["type"] for job in jobs for error in job.errors} == {"ConnectionError"}
    assert moves.count(BreakerClosed) == 1
    assert moves.count(BreakerOpened) == moves.count(BreakerHalfOpened)
    assert moves.count(BreakerHalfOpened) >= 2


async def completed(app, name, count):
    return await app.jobs.count(type=name) == {"completed": count}


async def test_one_probe_at_a_time_is_let_through(dsn):
    app = rj.App(dsn, migrate=True, poll_seconds=0.1)
    is_down, running, most = True, 0, 0

    @app.job(name="fragile", breaker=rj.Breaker(fail_max=1, reset_timeout=0.3, probes=1), backoff=lambda *_: 0.0)
    async def fragile(n: int) -> None:
        nonlocal running, most
        running += 1
        if app.breakers()["fragile"] != "closed":
            most = max(most, running)
        await asyncio.sleep(0.2)
        running -= 1
        if is_down:
            raise ConnectionError("down")

    async with app.running():
        await fragile.enqueue(0)
        await until(lambda: app.breakers()["fragile"] == "open")
        await app.enqueue_many([fragile.new(n) for n in range(30)])
        await until(lambda: app.breakers()["fragile"] == "half-open")
        is_down = False
        await until(lambda: completed(app, "fragile", 31))
    assert most == 1


@pytest.mark.parametrize("queue", ["e", "elsewhere"])
async def test_sources_of_other_queues_take_no_probe_away(dsn, queue):
    """All of them could take the type, and only one has jobs of it: its own queue, or one where it was seen to fail."""
    app = rj.App(dsn, migrate=True, poll_seconds=0.1)
    is_down = True

    @app.job(name="fragile", queue="e", breaker=rj.Breaker(fail_max=1, reset_timeout=0.3), backoff=lambda *_: 0.0)
    async def fragile() -> None:
        if is_down:
            raise ConnectionError("down")

    pipelines = [app.source(name).pipe(rj.execute(), rj.ack()) for name in ("a", "b", "c", "d", "e", "elsewhere", "f", "g")]
    async with app.running(*pipelines):
        await fragile.options(queue=queue).enqueue()
        await until(lambda: app.breakers()["fragile"] == "open")
        is_down = False
        began = asyncio.get_running_loop().time()
        await until(lambda: completed(app, "fragile", 1))
        print(f"recovered after {asyncio.get_running_loop().time() - began:.2f} s")


async def test_a_probe_is_found_in_a_queue_in_which_no_such_job_was_ever_seen(dsn):
    app = rj.App(dsn, migrate=True, poll_seconds=0.1)
    is_down = True

    @app.job(name="fragile", queue="one", max_attempts=1, breaker=rj.Breaker(fail_max=1, reset_timeout=0.1))
    async def fragile() -> None:
        if is_down:
            raise ConnectionError("the dependency is down")

    pipelines = [app.source(queue, max_demand=10).pipe(rj.execute(), rj.ack()) for queue in ("one", "other")]
    async with app.running(*pipelines):
        await fragile.enqueue()
        await until(lambda: app.breakers()["fragile"] != "closed")
        is_down = False
        await fragile.options(queue="other").enqueue()
        await until(lambda: app.breakers()["fragile"] == "closed")
        await until(lambda: is_counted(app, {"discarded": 1, "completed": 1}))


async def is_counted(app, counts):
    return await app.jobs.count(type="fragile") == counts
