"""Demand that follows load, on a real queue."""

from __future__ import annotations

import asyncio

import pytest
from reactivex import operators as ops

import rxjobs as rj
from rxjobs.autoscaling import Depth
from rxjobs.events import AutoscaleStep
from rxjobs.testing import fill
from tests.waiting import until


@pytest.fixture
def app(dsn):
    app = rj.App(dsn, poll_seconds=0.2, shutdown_grace=5)
    app.job(name="work")(work)
    return app


async def work() -> None:
    await asyncio.sleep(0.005)


def following(app, **options):
    how = rj.autoscale(1, 10, preset="genstage", every=0.05, **options)
    return app.source("default", max_demand=how).pipe(rj.execute(concurrency=50), rj.ack())


async def test_demand_rises_with_a_deep_queue_and_falls_as_it_empties(app, dsn, connection):
    steps = list[AutoscaleStep]()
    app.events.subscribe(lambda event: steps.append(event) if isinstance(event, AutoscaleStep) else None)
    await fill(connection, "work", 1200)
    async with app.running(following(app)) as running:
        most = 0

        async def done() -> bool:
            nonlocal most
            most = max(most, len(running.held_ids))
            return await connection.fetchval("SELECT count(*) = 1200 FROM rxjobs.finished_jobs WHERE state = 'completed'")

        await until(done, every=0.01)
        await until(lambda: steps[-1].after == 1)
    assert most <= 10
    afters = [step.after for step in steps]
    top = afters.index(10)
    assert afters[: top + 1] == sorted(afters[: top + 1])
    assert [(step.after - step.before) for step in steps[:2]] == [2, 2]
    assert {(step.name, step.source) for step in steps} == {("autoscale.step", "default")}
    assert all(step.ready is not None and step.ready <= 1001 for step in steps)
    assert "fewer than 10 jobs are ready" in {step.reason for step in steps}


async def test_what_is_scaled_by_hand_goes_first_until_it_is_as_declared_again(app, connection):
    held, may_end = list[int](), asyncio.Event()

    @app.job(name="long")
    async def long() -> None:
        held.append(1)
        await may_end.wait()

    steps = list[AutoscaleStep]()
    app.events.subscribe(lambda event: steps.append(event) if isinstance(event, AutoscaleStep) else None)
    async with app.running(following(app)):
        await app.queues.scale("default", max_demand=30)
        await fill(connection, "long", 2000)
        await until(lambda: len(held) >= 16)
        before = len(steps)
        await asyncio.sleep(0.3)
        assert len(steps) == before
        await app.queues.scale("default", max_demand=None)
        await until(lambda: len(steps) > before)
        may_end.set()


async def test_a_source_says_how_much_is_ready_and_for_how_long(app, connection):
    app.job(name="other")(work)
    async with app:
        await app.store.take_lease(app.id, "node", 1, 600.0)
        await fill(connection, "work", 30)
        await fill(connection, "other", 5)
        await fill(connection, "work", 5, queue="elsewhere")
        await fill(connection, "work", 5, state="scheduled")
        await fill(connection, "work", 5, args={"n": 1})
        await connection.execute("UPDATE rxjobs.live_jobs SET scheduled_at = now() - interval '1 minute' WHERE id % 2 = 0")
        found = await rj.PostgresSource(app, "default").depth(100)
        assert (found.ready, found.oldest_seconds >= 60) == (40, True)
        assert (await rj.PostgresSource(app, "default").depth(7)).ready == 7
        assert (await rj.PostgresSource(app, "default", {"types": ["other"]}).depth(100)).ready == 5
        assert (await rj.PostgresSource(app, "default", {"args": {"n": 1}}).depth(100)).ready == 5
        assert await rj.PostgresSource(app, "default", {"tags": ["none"]}).depth(100) == Depth(0)


async def test_a_list_that_can_never_be_full_stops_the_app_before_it_runs(app, connection):
    """Through the app: nothing was claimed, and the node has left."""
    await fill(connection, "work", 5)
    stream = app.source("default", max_demand=10).pipe(ops.do_action(lambda _: None), rj.buffer(20, None), rj.execute(), rj.ack())
    with pytest.raises(rj.InvalidOption, match="its source holds 10 at most"):
        async with app.running(stream):
            pass
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs WHERE state = 'available'") == 5
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.nodes") == 0
