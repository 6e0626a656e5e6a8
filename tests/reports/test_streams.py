"""What befell users of Rx: items that came late or never, deadlocks, lost order, recursion. See docs/faults.md."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

import pytest
from reactivex import Observable, abc
from reactivex import operators as ops
from reactivex.disposable import Disposable

import rxjobs as rj
from rxjobs.awaiting import LoopScheduler
from rxjobs.events import PipelineRestarted
from rxjobs.testing import MemorySource, a_job, job_type
from rxjobs.testing.watched import Watched, runs
from tests.virtual import on_virtual_time
from tests.waiting import until

# an item that never comes, or a lock that nobody gives back, is a test that hangs
pytestmark = pytest.mark.timeout(60)

PER_THREAD, THREADS = 2_500, 4


def told_by_threads(per_thread: int = PER_THREAD, threads: int = THREADS) -> Observable[rj.Job]:
    """Jobs from several threads at once, none of which waits for another: `args` say whose job it is, and its place there."""

    def subscribe(observer: abc.ObserverBase[rj.Job], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        def tell(thread: int) -> None:
            for place in range(per_thread):
                observer.on_next(a_job(args={"thread": thread, "place": place}))

        telling = [threading.Thread(target=tell, args=(thread,)) for thread in range(threads)]

        def tell_all() -> None:
            for thread in telling:
                thread.start()
            for thread in telling:
                thread.join()
            observer.on_completed()

        threading.Thread(target=tell_all).start()
        return Disposable()

    return Observable(subscribe)


async def all_of(stream: Observable[Any]) -> list[Any]:
    """What a stream gives until it ends; raises what it breaks with."""
    seen, ended = list[Any](), asyncio.get_running_loop().create_future()
    stream.subscribe(seen.append, ended.set_exception, lambda: ended.set_result(None))
    await ended
    return seen


def is_in_order(jobs: list[rj.Job]) -> bool:
    """Whether there are all jobs of all threads, once each, those of one thread in the order in which it told them."""
    return all(
        [job.args["place"] for job in jobs if job.args["thread"] == thread] == list(range(PER_THREAD)) for thread in range(THREADS)
    )


def depth() -> int:
    """How many calls deep this is."""
    frame, found = sys._getframe(), 0
    while frame := frame.f_back:  # type: ignore[assignment]
        found += 1
    return found


async def test_what_ends_in_a_thread_wakes_an_idle_loop():
    """As RxPY#169, #314, #708: an item from a thread came when something else woke the loop, if ever.

    In asyncio's debug mode, which raises when a thread uses what is only for the loop's own.
    """
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    threads, source, late = rj.in_threads(2), MemorySource(), list[float]()
    done = asyncio.Event()

    def work() -> float:
        time.sleep(0.02)  # by then the loop has nothing to do
        return time.monotonic()

    def see(finished: rj.Finished) -> None:
        assert isinstance(finished.outcome, rj.Complete)
        late.append(time.monotonic() - finished.outcome.result)
        done.set()

    working = job_type(work, on=threads)
    rj.pull(source, max_demand=1).pipe(ops.observe_on(threads), rj.execute(), rj.ack()).subscribe(see)
    for _ in range(20):
        source.push(a_job(definition=working))
        async with asyncio.timeout(30):
            await done.wait()
        done.clear()
    source.close()
    await threads.close()
    print(f"seen after {max(late) * 1000:.1f} ms at most")
    assert max(late) < 5  # a loop that nobody wakes sleeps until the deadline above


@pytest.mark.parametrize("seconds", [0.0, 60.0])
async def test_a_thousand_actions_are_disposed_on_their_own_loop_and_on_another_thread(seconds):
    """As RxPY#566: to dispose on the loop's own thread waited for that loop, which waited for it."""
    scheduler, acted = LoopScheduler(asyncio.get_running_loop()), list[int]()

    def dispose_all() -> float:
        began = time.monotonic()
        for n in range(1_000):
            scheduler.schedule_relative(seconds, lambda *_, n=n: acted.append(n)).dispose()
        return time.monotonic() - began

    here = dispose_all()
    await asyncio.sleep(0)
    assert acted == []
    elsewhere = await asyncio.to_thread(dispose_all)
    assert seconds == 0.0 or acted == []  # what is due at once may have begun on its loop
    print(f"1,000 disposed in {here * 1000:.1f} ms here, and in {elsewhere * 1000:.1f} ms on a thread")


async def test_items_of_many_threads_are_all_there_once_and_in_order():
    """As RxPY#88: a queue that threads shared lost items, and was disposed under their hands."""
    merged = told_by_threads().pipe(rj.map(lambda job: job, concurrency=1), rj.filter(lambda job: True), rj.complete())
    finished = await all_of(merged)
    assert len(finished) == THREADS * PER_THREAD
    assert is_in_order([one.job for one in finished])


@pytest.mark.parametrize(("count", "timespan"), [(7, 0.001), (1_000, 0.002), (3, None)])
async def test_a_buffer_that_threads_fill_while_its_time_runs_out_loses_and_doubles_nothing(count, timespan):
    """As RxPY#812: lists by time or count were filled by one thread and sent by another."""
    sizes = list[int]()

    def note(jobs: list[rj.Job]) -> None:
        sizes.append(len(jobs))

    finished = await all_of(told_by_threads().pipe(rj.buffer(count, timespan), ops.do_action(note), rj.complete()))
    assert len(finished) == THREADS * PER_THREAD
    assert is_in_order([one.job for one in finished])
    assert 0 < min(sizes) <= max(sizes) <= count


async def test_ten_thousand_jobs_that_never_wait_take_no_deeper_stack_than_the_first():
    """As RxPY#76, #482: sources that never wait recursed, until the stream broke or just ended."""
    depths = list[int]()

    async def at_once() -> None: ...

    working = job_type(at_once)
    source = Watched(MemorySource([a_job(definition=working) for _ in range(10_000)]), 1_000)
    stream = rj.pull(source, max_demand=1_000).pipe(
        rj.map(lambda job: job),
        rj.filter(lambda job: True),
        rj.execute(concurrency=3),
        ops.do_action(lambda _: depths.append(depth())),
        rj.ack(),
    )
    async with runs(stream) as observed:
        await until(lambda: len(source.settled) == 10_000)
    observed.hold_to_the_laws()
    source.hold_to_the_laws()
    assert max(depths) < depths[0] + 20


@on_virtual_time
async def test_a_pipeline_that_breaks_a_thousand_times_works_as_after_the_first():
    """As RxPY#482: each repetition subscribed inside of the one before."""
    breaks, depths = iter(range(1_000)), list[int]()

    def fragile(item: Any) -> Any:
        depths.append(depth())
        if next(breaks, None) is not None:
            raise ValueError("fragile")
        return item

    source = Watched(MemorySource([a_job(max_attempts=5_000)]), 1)
    async with runs(rj.pull(source, max_demand=1).pipe(ops.map(fragile), rj.complete(), rj.ack()), max_restarts=1_000) as observed:
        await asyncio.sleep(40_000)  # a restart each half minute
    assert sum(isinstance(event, PipelineRestarted) for event in observed.events) == 1_000
    assert isinstance(source.settled[-1].outcome, rj.Complete)
    assert max(depths) < min(depths) + 20  # a few more or less, as it comes: not one more each time
