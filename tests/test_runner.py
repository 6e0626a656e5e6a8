"""Supervision, one for one, on sources in memory."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import reactivex as rx
from reactivex import operators as ops
from reactivex.scheduler import ThreadPoolScheduler

import rxjobs as rj
from rxjobs.awaiting import LoopScheduler
from rxjobs.declared import Pipeline
from rxjobs.errors import WornOut
from rxjobs.event_stream import EventStream
from rxjobs.events import PipelineRestarted, PipelineStarted, PipelineStopped
from rxjobs.middleware.timeout import timeout
from rxjobs.runner import MOST_LEFT_BEHIND, Running
from rxjobs.stopping import left_behind
from rxjobs.testing import MemorySource, a_job, job_type
from rxjobs.testing.conformance_executor import until
from rxjobs.testing.watched import Watched, runs
from tests.virtual import on_virtual_time


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def sleepers(*seconds: float) -> list[rj.Job]:
    sleeping = job_type(sleep)
    return [a_job(definition=sleeping, args={"seconds": each}) for each in seconds]


def watching(*jobs: rj.Job, max_demand: int = 10) -> Watched:
    return Watched(MemorySource(jobs), max_demand)


def pulled(source: Watched) -> rx.Observable[rj.Job]:
    return rj.pull(source, max_demand=source.demand.max_demand)


def outcomes(source: Watched) -> list[type[rj.Outcome]]:
    return [type(one.outcome) for one in source.settled]


class Fragile:
    """A function that raises the first few times."""

    def __init__(self, times: int = 1) -> None:
        self.left = times

    def __call__(self, item: Any) -> Any:
        if self.left:
            self.left -= 1
            raise ValueError("fragile")
        return item


@on_virtual_time
async def test_a_pipeline_that_breaks_is_subscribed_again_and_each_job_is_completed_once():
    source = watching(*sleepers(*[1.0] * 100))
    stream = pulled(source).pipe(rj.execute(concurrency=5), ops.map(Fragile()), rj.ack())
    async with runs(stream) as observed:
        await asyncio.sleep(100)
    source.hold_to_the_laws()
    completed = [one.job.id for one in source.settled if isinstance(one.outcome, rj.Complete)]
    assert len(completed) == len(set(completed)) == 100
    assert [type(event) for event in observed.events] == [PipelineStarted, PipelineRestarted, PipelineStopped]


@on_virtual_time
async def test_what_runs_when_a_pipeline_breaks_runs_on():
    source = watching(*sleepers(1, 5, 5))
    stream = pulled(source).pipe(rj.execute(), ops.map(Fragile()), rj.ack())
    async with runs(stream) as observed:
        await asyncio.sleep(4.9)
        assert len(observed.running.held_ids) == 2
        await asyncio.sleep(0.2)
        assert not observed.running.held_ids
    assert len(source.fetched) == 3
    assert outcomes(source) == [rj.Complete] * 3


@on_virtual_time
async def test_demand_counts_what_is_held_from_before_the_restart():
    source = watching(*sleepers(1, *[50.0] * 30), max_demand=4)
    stream = pulled(source).pipe(rj.execute(), ops.map(Fragile()), rj.ack())
    async with runs(stream, grace=0):
        await asyncio.sleep(40)
        assert len(source.fetched) == 4
    source.hold_to_the_laws()
    assert source.most_held == 4


@on_virtual_time
async def test_what_was_fetched_and_not_worked_on_when_a_pipeline_breaks_comes_back_at_once():
    source = watching(*[a_job(args={"n": n}) for n in range(6)])
    stream = pulled(source).pipe(ops.map(Fragile()), rj.complete(), rj.ack())
    async with runs(stream):
        await asyncio.sleep(1)
        assert sorted(one.job.id for one in source.settled if isinstance(one.outcome, rj.Complete)) == sorted(
            {id_ for id_, _ in source.fetched}
        )
    source.hold_to_the_laws()


@on_virtual_time
async def test_other_pipelines_do_not_notice():
    broken, sound = watching(*sleepers(1, 1)), watching(*sleepers(*range(1, 10)))
    breaks = pulled(broken).pipe(ops.map(Fragile(3)), rj.execute(), rj.ack())
    goes_on = pulled(sound).pipe(rj.execute(concurrency=1), rj.ack())
    async with runs(breaks, goes_on) as observed:
        await asyncio.sleep(45.5)
        assert outcomes(sound) == [rj.Complete] * 9
    assert {event.pipeline for event in observed.events if isinstance(event, PipelineRestarted)} == {"pipeline-1"}


@on_virtual_time
async def test_each_restart_comes_later_than_the_one_before():
    source = watching(*sleepers(1))
    async with runs(pulled(source).pipe(ops.map(Fragile(4)), rj.complete(), rj.ack())) as observed:
        await asyncio.sleep(60)
    delays = [event.delay for event in observed.events if isinstance(event, PipelineRestarted)]
    assert len(delays) == 4
    assert all(least <= delay <= 1.1 * least for least, delay in zip((0.5, 1, 2, 4), delays, strict=True))
    assert outcomes(source)[-1] is rj.Complete


@on_virtual_time
async def test_a_pipeline_that_breaks_too_often_ends_with_the_reason():
    source = watching(*sleepers(1))
    stream = pulled(source).pipe(ops.map(Fragile(1000)), rj.complete(), rj.ack())
    async with runs(stream, max_restarts=3) as observed:
        with pytest.raises(rj.PipelineBroken, match=r"pipeline-1 broke 4 times in 60 s, the last time with ValueError: fragile"):
            await asyncio.wait_for(observed.running.wait(), 1000)
    assert outcomes(source) == [rj.Release] * 4


@on_virtual_time
async def test_restarts_longer_ago_than_the_window_are_forgiven():
    source, fragile = watching(), Fragile()
    async with runs(pulled(source).pipe(ops.map(fragile), rj.complete(), rj.ack()), max_restarts=1) as observed:
        for job in sleepers(1, 1, 1, 1):
            fragile.left = 1
            source.source.push(job)
            await asyncio.sleep(61)
    assert [type(event) for event in observed.events].count(PipelineRestarted) == 4
    assert outcomes(source).count(rj.Complete) == 4


@pytest.mark.parametrize("where", ["inside subscribe", "as on_error inside subscribe"])
@on_virtual_time
async def test_a_pipeline_that_breaks_while_it_is_subscribed_is_subscribed_again(where):
    source, left = watching(*sleepers(1)), [2]

    def make(_: Any) -> rx.Observable[Any]:
        if left[0]:
            left[0] -= 1
            if where == "inside subscribe":
                raise ValueError("not yet")
            return rx.throw(ValueError("not yet"))
        return pulled(source).pipe(rj.execute(), rj.ack())

    async with runs(rx.defer(make)) as observed:
        await asyncio.sleep(10)
    assert outcomes(source) == [rj.Complete]
    assert [type(event) for event in observed.events].count(PipelineRestarted) == 2


@on_virtual_time
async def test_stop_lets_jobs_in_flight_end():
    source = watching(*sleepers(3, 3, 9))
    async with runs(pulled(source).pipe(rj.execute(concurrency=2), rj.ack()), grace=25) as observed:
        await asyncio.sleep(1)
    assert outcomes(source) == [rj.Complete] * 3
    assert [type(event) for event in observed.events] == [PipelineStarted, PipelineStopped]


@pytest.mark.parametrize("breaks", [0, 1], ids=["from the start", "after a restart"])
@on_virtual_time
async def test_what_has_not_ended_within_the_grace_is_stopped_and_released(breaks, caplog):
    loop, ended = asyncio.get_running_loop(), list[float]()

    async def long() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(loop.time())

    source = watching(*sleepers(1), a_job(definition=job_type(long)))
    stream = pulled(source).pipe(rj.execute(), ops.map(Fragile(breaks)), rj.ack())
    async with runs(stream, grace=5):
        await asyncio.sleep(10)
    assert outcomes(source) == [rj.Complete, rj.Release]
    assert source.settled[1].job.attempt == 1
    assert 15 <= ended[0] < 15.1
    assert "1 jobs did not end within 5 s, and are released" in caplog.text


@on_virtual_time
async def test_jobs_that_wait_for_their_turn_are_released_when_the_grace_is_over():
    source = watching(*sleepers(*[100.0] * 8))
    async with runs(pulled(source).pipe(rj.execute(concurrency=2), rj.buffer(5, None), rj.ack()), grace=2) as observed:
        await asyncio.sleep(1)
    assert outcomes(source) == [rj.Release] * 8
    assert not observed.running.held_ids


@contextmanager
def collections() -> Iterator[list[int]]:
    """The generations in which garbage is collected inside, none by itself."""
    seen = list[int]()

    def see(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            seen.append(about["generation"])

    gc.collect()
    gc.disable()
    gc.callbacks.append(see)
    try:
        yield seen
    finally:
        gc.callbacks.remove(see)
        gc.enable()


async def test_a_stop_collects_no_garbage_where_no_job_can_lie_in_it():
    """With millions of objects in memory, that would hold up the event loop for seconds."""
    source = watching(*sleepers(0, 0), *sleepers(60))
    with collections() as seen:
        async with runs(pulled(source).pipe(rj.execute(), rj.ack()), grace=0):
            await asyncio.sleep(0.05)
    assert outcomes(source) == [rj.Complete, rj.Complete, rj.Release]
    assert seen == []


@pytest.mark.parametrize("is_old", [False, True])
async def test_jobs_that_lie_in_a_cycle_are_released_by_a_stop_and_looked_for_among_the_old_last(is_old):
    def hoard(source: rx.Observable[Any]) -> rx.Observable[Any]:
        def subscribe(observer: Any, scheduler: Any = None) -> Any:
            kept: list[Any] = []
            kept.append(kept)
            return source.subscribe(kept.append, scheduler=scheduler)

        return rx.Observable(subscribe)

    source = watching(a_job(), a_job())
    with collections() as seen:
        async with runs(pulled(source).pipe(hoard, rj.complete(), rj.ack()), grace=0):
            await until(lambda: bool(source.fetched))
            if is_old:
                gc.collect()
                seen.clear()
    assert outcomes(source) == [rj.Release, rj.Release]
    assert seen == ([0, 1, 2][: len(seen)] if is_old else [0])


@on_virtual_time
async def test_a_stop_while_a_broken_pipeline_waits_ends_it_at_once_and_for_good():
    source, loop = watching(*sleepers(1)), asyncio.get_running_loop()
    slow = watching(*sleepers(20))
    breaks = pulled(source).pipe(ops.map(Fragile(1000)), rj.complete(), rj.ack())
    async with runs(breaks, pulled(slow).pipe(rj.execute(), rj.ack()), grace=60) as observed:
        await asyncio.sleep(0.1)
        fetched = len(source.fetched)
    assert loop.time() < 21
    assert len(source.fetched) == fetched
    assert [event.pipeline for event in observed.events if isinstance(event, PipelineStopped)] == ["pipeline-1", "pipeline-2"]


@on_virtual_time
async def test_wait_returns_when_every_pipeline_has_ended_by_itself():
    first, second = watching(*sleepers(3)), watching(*sleepers(7))
    first.source.close()
    second.source.close()
    loop = asyncio.get_running_loop()
    streams = [pulled(source).pipe(rj.execute(), rj.ack()) for source in (first, second)]
    async with runs(*streams) as observed:
        await asyncio.wait_for(observed.running.wait(), 100)
        assert 7 <= loop.time() < 7.1


@on_virtual_time
async def test_what_reaches_the_end_finished_is_acked_there():
    source = watching(*sleepers(1, 2))
    async with runs(pulled(source).pipe(rj.execute())):
        await asyncio.sleep(5)
        assert outcomes(source) == [rj.Complete] * 2


async def test_what_reaches_the_end_on_another_thread_is_acked_on_the_loop():
    source, threads = watching(*[a_job() for _ in range(100)]), ThreadPoolScheduler(2)
    source.source.close()
    stream = pulled(source).pipe(rj.complete(), ops.observe_on(threads))
    async with runs(stream) as observed:
        await asyncio.wait_for(observed.running.wait(), 10)
    threads.executor.shutdown()
    source.hold_to_the_laws()
    assert outcomes(source) == [rj.Complete] * 100


@on_virtual_time
async def test_a_job_that_reaches_the_end_unsettled_is_released_with_advice(caplog):
    job = a_job(queue="mail")
    source = watching(job)
    with caplog.at_level(logging.WARNING, "rxjobs.runner"):
        async with runs(pulled(source), grace=0):
            await asyncio.sleep(0.01)
            assert rj.Release in outcomes(source)
    assert f"job {job.id} (a_job) of queue mail came to the end of its pipeline" in caplog.text
    assert "rj.execute() or rj.complete()" in caplog.text


@on_virtual_time
async def test_jobs_that_all_reach_the_end_unsettled_do_not_make_it_spin():
    source = watching(a_job())
    async with runs(pulled(source)):
        await asyncio.sleep(60)
    assert len(source.fetched) < 20


@on_virtual_time
async def test_what_is_acked_twice_is_settled_once():
    source, came = watching(*sleepers(1, 2)), list[rj.Finished]()
    async with runs(pulled(source).pipe(rj.execute(), rj.ack(), rj.ack(), ops.do_action(came.append))):
        await asyncio.sleep(5)
    source.hold_to_the_laws()
    assert len(came) == 2


@on_virtual_time
async def test_a_source_that_is_subscribed_late_belongs_to_its_pipeline():
    first, second = watching(*sleepers(1)), watching(*sleepers(*[30.0] * 4))
    first.source.close()
    stream = rx.concat(pulled(first), pulled(second)).pipe(rj.execute(), rj.ack())
    async with runs(stream, grace=1) as observed:
        await asyncio.sleep(5)
        assert len(observed.running.held_ids) == 4
    assert outcomes(second) == [rj.Release] * 4


@on_virtual_time
async def test_the_second_of_two_sources_is_not_begun_once_the_pipeline_is_to_stop():
    first, second = watching(*sleepers(5)), watching(*sleepers(1))
    async with runs(rx.concat(pulled(first), pulled(second)).pipe(rj.execute(), rj.ack())):
        await asyncio.sleep(1)
    assert outcomes(first) == [rj.Complete]
    assert second.fetched == []


@on_virtual_time
async def test_a_job_does_not_see_what_an_earlier_one_has_set_in_its_context():
    whose: ContextVar[int] = ContextVar("whose", default=0)
    seen = list[int]()

    async def look(n: int) -> None:
        seen.append(whose.get())
        whose.set(n)
        await asyncio.sleep(1)

    looking = job_type(look)
    source = watching(*[a_job(definition=looking, args={"n": n}) for n in range(1, 31)], max_demand=4)
    async with runs(pulled(source).pipe(rj.execute(concurrency=2), rj.ack())):
        await asyncio.sleep(20)
    assert seen == [0] * 30


@on_virtual_time
async def test_many_jobs_that_never_wait_can_follow_one_that_does():
    async def at_once() -> None:
        """A job that never waits."""

    quick = job_type(at_once)
    jobs = [*sleepers(1), *[a_job(definition=quick) for _ in range(3000)]]
    source = watching(*jobs, max_demand=4000)
    async with runs(pulled(source).pipe(rj.execute(concurrency=1), rj.ack())) as observed:
        await asyncio.sleep(10)
    observed.hold_to_the_laws()
    assert outcomes(source) == [rj.Complete] * 3001


@on_virtual_time
async def test_its_ids_are_held_also_when_a_released_job_is_fetched_again_before_its_release_is_known():
    class Hasty(MemorySource):
        """Makes a released job available again before settle has returned."""

        async def settle(self, finished: list[rj.Finished]) -> None:
            await super().settle(finished)
            await asyncio.sleep(1)

    job = a_job(definition=job_type(sleep), args={"seconds": 10})
    source = Hasty([job])
    answers = iter([False, True])
    stream = rj.pull(source, max_demand=10).pipe(rj.filter(lambda _: next(answers), otherwise=rj.Release()), rj.execute(), rj.ack())
    async with runs(stream, grace=60) as observed:
        await asyncio.sleep(5)
        assert observed.running.held_ids == {job.id}


@on_virtual_time
async def test_an_observer_that_raises_breaks_its_pipeline_and_nothing_is_lost():
    class Raising(rx.Observable[Any]):
        """An operator of somebody's own, which lets what its function raises go up."""

        def __init__(self, source: rx.Observable[Any]) -> None:
            fragile = Fragile()
            super().__init__(
                lambda observer, scheduler=None: source.subscribe(
                    lambda item: observer.on_next(fragile(item)), observer.on_error, observer.on_completed, scheduler=scheduler
                )
            )

    source = watching(*[a_job() for _ in range(50)])
    async with runs(pulled(source).pipe(rj.complete(), rj.ack(), Raising)) as observed:
        await asyncio.sleep(5)
    source.hold_to_the_laws()
    # what was being fetched when it broke is given back, and comes again
    assert [outcome for outcome in outcomes(source) if outcome is not rj.Release] == [rj.Complete] * 50
    assert [type(event) for event in observed.events].count(PipelineRestarted) == 1


@on_virtual_time
async def test_running_pipelines_that_were_never_started_can_be_stopped():
    events = EventStream()
    scheduler = LoopScheduler(asyncio.get_running_loop())
    running = Running([Pipeline("idle", rx.never())], scheduler, events, max_restarts=1, restart_window=1)
    await running.stop(0)
    assert running.held_ids == set()


def leased(*jobs: rj.Job) -> list[rj.Job]:
    """Jobs as a node has claimed them."""
    return [msgspec.structs.replace(job, node=uuid4()) for job in jobs]


@on_virtual_time
async def test_who_is_cut_off_releases_what_it_runs_and_what_waits_and_begins_nothing():
    source = watching(*leased(*sleepers(*[100.0] * 6)))
    async with runs(pulled(source).pipe(rj.execute(concurrency=2), rj.ack()), grace=0) as observed:
        await asyncio.sleep(1)
        source.source.push = lambda *jobs: None  # what is released does not come back
        observed.running.cut_off()
        assert observed.running.is_cut_off
        await asyncio.sleep(0.5)
        assert outcomes(source) == [rj.Release] * 6
        started = [event for event in observed.events if event.name == "job.start"]
        assert not started or len(started) == 2
        observed.running.restore()
        assert not observed.running.is_cut_off
    source.hold_to_the_laws()


@on_virtual_time
async def test_a_job_that_lay_in_an_operator_when_its_node_was_cut_off_is_not_begun():
    began = list[int]()

    async def begin(n: int) -> None:
        began.append(n)

    source = watching(*leased(*[a_job(definition=job_type(begin), args={"n": n}) for n in range(3)]))
    stream = pulled(source).pipe(ops.delay(10.0), rj.execute(), rj.ack())
    async with runs(stream) as observed:
        await asyncio.sleep(1)
        observed.running.cut_off()
        source.source.push(*leased(a_job(definition=job_type(begin), args={"n": 3})))
        await asyncio.sleep(10.5)
        assert outcomes(source)[:3] == [rj.Release] * 3
        await asyncio.sleep(15)
    assert began == [3, 0, 1, 2]


@on_virtual_time
async def test_an_answer_to_what_was_asked_before_the_cut_off_comes_too_late():
    class Late(MemorySource):
        """Answers after a while."""

        async def fetch(self, n: int) -> list[rj.Job]:
            jobs = await super().fetch(n)
            await asyncio.sleep(5)
            return jobs

    source = Watched(Late(leased(*sleepers(1))), 10)
    async with runs(pulled(source).pipe(rj.execute(), rj.ack())) as observed:
        await asyncio.sleep(1)
        observed.running.cut_off()
        await asyncio.sleep(30)
    assert outcomes(source) == [rj.Release, rj.Complete]


@on_virtual_time
async def test_jobs_that_no_lease_holds_are_not_cut_off():
    source = watching(*sleepers(5, 5, 5))
    async with runs(pulled(source).pipe(rj.execute(concurrency=2), rj.ack())) as observed:
        await asyncio.sleep(1)
        observed.running.cut_off()
        await asyncio.sleep(20)
    assert outcomes(source) == [rj.Complete] * 3


@on_virtual_time
async def test_a_coroutine_that_does_not_stop_is_told_once_and_neither_released_nor_waited_for(caplog):
    told, let_go, loop = list[float](), asyncio.Event(), asyncio.get_running_loop()

    async def stubborn() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                told.append(loop.time())

    job = a_job(definition=job_type(stubborn))
    source = watching(*leased(job))
    async with runs(pulled(source).pipe(rj.execute(), rj.ack()), grace=5) as observed:
        await asyncio.sleep(1)
        observed.running.cut_off()
        await asyncio.sleep(2)
        assert f"jobs [{job.id}] do not stop, and may overlap with their next attempt" in caplog.text
    assert loop.time() < 3 + 5 + 2
    assert told == [1.0]
    assert source.settled == []
    assert observed.running.held_ids == {job.id}
    assert f"jobs [{job.id}] do not stop, and are not released" in caplog.text
    assert len(left_behind()) == 1
    let_go.set()
    await asyncio.sleep(0.1)
    assert f"job {job.id} ({job.type}) ended after its app: its outcome Complete is not written down" in caplog.text
    assert source.settled == []


@on_virtual_time
async def test_too_many_coroutines_that_do_not_stop_are_worn_out():
    let_go = asyncio.Event()

    async def stubborn() -> None:
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()

    definition = job_type(stubborn, middleware=(timeout(1),))
    source = watching(*[a_job(definition=definition) for _ in range(MOST_LEFT_BEHIND)], max_demand=100)
    async with runs(pulled(source).pipe(rj.execute(concurrency=100), rj.ack()), grace=0) as observed:
        with pytest.raises(WornOut, match="64 jobs were cancelled and do not stop"):
            await asyncio.wait_for(observed.running.wait(), 60)
    let_go.set()


async def test_an_executor_without_spare_threads_is_worn_out():
    let_go, executor = threading.Event(), rj.in_threads(4, spare=2)
    definition = job_type(lambda: let_go.wait(20), on=executor, middleware=(timeout(0.1),))
    source = watching(a_job(definition=definition), a_job(definition=definition))
    async with runs(pulled(source).pipe(rj.execute(on=executor), rj.ack()), grace=0) as observed:
        with pytest.raises(WornOut, match=r"in_threads\(4, spare=2\) has no thread left"):
            await asyncio.wait_for(observed.running.wait(), 10)
    let_go.set()
