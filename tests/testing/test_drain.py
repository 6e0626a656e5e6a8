"""All jobs that are ready, run to the end on a real database."""

from __future__ import annotations

import asyncio

import pytest
import reactivex as rx

import rxjobs as rj
from rxjobs.testing import assert_enqueued, drain, drain_sync, refute_enqueued


async def test_what_is_ready_and_what_that_enqueues_is_run_to_the_end(app):
    order = []

    @app.job(name="down", queue="a")
    async def down(n: int) -> None:
        order.append(n)
        if n:
            await down.options(queue="b" if n % 2 else "a").enqueue(n=n - 1)

    @app.job(name="plain", queue="b")
    def plain() -> None:
        order.append("plain")

    async with app:
        await down.enqueue(n=5)
        await plain.enqueue()
        await down.options(delay=3600).enqueue(n=9)
        assert await drain(app) == {"complete": 7}
        assert sorted(order, key=str) == [0, 1, 2, 3, 4, 5, "plain"]
        assert await app.jobs.count() == {"completed": 7, "scheduled": 1}
        assert await drain(app) == {}


async def test_outcomes_are_counted_and_what_is_for_later_is_left_unless_asked_for(app):
    @app.job(name="ends", max_attempts=3)
    async def ends(how: str) -> None:
        match how, rj.current_job().attempt:
            case "fails", _:
                raise ValueError("no")
            case "snoozes", 1 if not rj.current_job().meta.get("x") and snoozed.append(1) is None and len(snoozed) < 3:
                raise rj.Snooze(600)
            case "cancels", _:
                raise rj.Cancel("not wanted")

    snoozed: list[int] = []
    async with app:
        for how in ("fails", "snoozes", "cancels", "works"):
            await ends.enqueue(how=how)
        assert await drain(app) == {"retry": 1, "snooze": 1, "cancel": 1, "complete": 1}
        assert await app.jobs.count() == {"retryable": 1, "scheduled": 1, "cancelled": 1, "completed": 1}
        assert await drain(app, scheduled=True) == {"snooze": 1, "complete": 1}
        assert await drain(app, retries=True) == {"retry": 1, "discard": 1}
        assert await app.jobs.count() == {"discarded": 1, "cancelled": 1, "completed": 2}


async def test_those_for_later_come_in_the_order_of_their_time(app):
    order = []

    @app.job(name="note")
    async def note(n: int) -> None:
        order.append(n)

    async with app:
        for n in (3, 1, 2):
            await note.options(delay=n * 1000).enqueue(n=n)
        assert await drain(app, scheduled=True) == {"complete": 3}
    assert order == [1, 2, 3]


async def test_only_the_jobs_of_a_queue_are_run_where_one_is_named(app):
    @app.job(name="one", queue="a")
    async def one() -> None: ...

    @app.job(name="two", queue="b")
    async def two() -> None: ...

    async with app:
        await one.enqueue()
        await two.enqueue()
        assert await drain(app, queue="a") == {"complete": 1}
        refute_enqueued(one)
        assert_enqueued(two, queue="b")
        with pytest.raises(rj.UnknownQueue, match="no pipeline of this app takes jobs of the queue c; they take those of a, b"):
            await drain(app, queue="c")


async def test_the_pipelines_that_the_app_declares_are_what_runs(app):
    """With what gathers in their buffers, also where that is not full; and without what comes from elsewhere."""
    batches, loaded = [], []

    @app.job(name="row", queue="rows")
    async def row(n: int) -> None: ...

    @app.job(name="mail", queue="mail")
    async def mail() -> None:
        loaded.append(rj.current_job().assigns["name"])

    async def write(jobs):
        batches.append(len(jobs))

    app.pipeline(app.source("rows").pipe(rj.buffer(10, 3600), rj.execute_batch(write), rj.ack()))
    app.pipeline(app.source("mail").pipe(rj.enrich(lambda job: {"name": "Ada"}), rj.execute(), rj.ack()))
    app.pipeline(rj.pull(rj.AsyncIterableSource(never()), max_demand=1).pipe(rj.execute(app=app), rj.ack()))
    async with app:
        await app.enqueue_many([*(row.new(n=n) for n in range(23)), mail.new()])
        assert await drain(app) == {"complete": 24}
    assert sum(batches) == 23
    assert loaded == ["Ada"]


async def never():
    await asyncio.sleep(3600)
    yield rj.NewJob


async def test_a_job_that_waits_for_another_ends(app):
    @app.job(name="inner", record=True)
    async def inner() -> int:
        return 7

    @app.job(name="outer", record=True)
    async def outer() -> int:
        return 1 + await (await inner.enqueue()).result(timeout=20)

    async with app:
        enqueued = await outer.enqueue()
        assert await drain(app) == {"complete": 2}
        assert await enqueued.result() == 8


async def test_what_does_not_end_in_time_is_named(app):
    @app.job(name="stuck")
    async def stuck() -> None:
        await asyncio.sleep(3600)

    async with app:
        job = await stuck.enqueue()
        with pytest.raises(TimeoutError, match=rf"within 0\.3 s; 0 attempts have ended, and these jobs run: {job.id} \(stuck\)"):
            await drain(app, timeout=0.3)


async def test_a_pipeline_that_breaks_breaks_the_test(app):
    @app.job(name="work")
    async def work() -> None: ...

    app.pipeline(app.source("default").pipe(rj.execute(), lambda _: rx.throw(ValueError("broken"))))
    async with app:
        await work.enqueue()
        with pytest.raises(ValueError, match="broken"):
            await drain(app)


def test_without_an_event_loop(app):
    @app.job(name="plain", queue="mail")
    def plain(n: int) -> None:
        if n:
            app.sync.enqueue(plain.new(n=n - 1))

    @app.job(name="awaited")
    async def awaited() -> None:
        await plain.enqueue(n=0)

    app.sync.enqueue(plain.new(n=2))
    app.sync.enqueue(awaited.new())
    assert drain_sync(app) == {"complete": 5}
    assert app.sync.jobs.count() == {"completed": 5}


async def test_in_an_event_loop_the_other_is_to_be_awaited(app):
    with pytest.raises(rj.NotOpen, match="await drain"):
        drain_sync(app)
