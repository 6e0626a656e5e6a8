import asyncio
import threading
from functools import partial

import pytest
import reactivex as rx
from reactivex import operators as ops

from rxjobs.errors import NotOpen
from rxjobs.executors.on_loop import on_loop
from rxjobs.testing import conformance_executor as conformance
from rxjobs.testing import conformance_jobs as jobs
from rxjobs.testing.conformance_executor import call_of


async def test_it_keeps_the_laws_of_executors():
    await conformance.executor(on_loop)


async def test_a_partial_of_a_coroutine_function_is_awaited():
    function = partial(jobs.add_soon, 1)
    function.__module__, function.__qualname__ = "somewhere", "function"
    assert await on_loop().run(call_of(function, b=2)) == 3


@pytest.mark.filterwarnings("error::RuntimeWarning")
async def test_a_coroutine_that_returns_a_coroutine_is_not_done():
    async def nested():
        return jobs.add_soon(1, 2)

    with pytest.raises(TypeError, match="await it inside"):
        await on_loop().run(call_of(nested))


async def test_a_job_that_starts_a_loop_fails_and_the_loop_goes_on():
    def nested():
        coroutine = jobs.add_soon(1)
        try:
            asyncio.run(coroutine)
        finally:
            coroutine.close()

    executor = on_loop()
    with pytest.raises(RuntimeError, match=r"asyncio\.run"):
        await executor.run(call_of(nested))
    assert await executor.run(call_of(jobs.add_soon, 1)) == 1


def test_it_works_on_one_loop_after_another():
    executor = on_loop()
    for _ in range(2):
        assert asyncio.run(executor.run(call_of(jobs.add_soon, 1))) == 1


async def test_observe_on_brings_items_from_a_thread_to_the_loop_in_order():
    loop_thread, seen, threads = threading.get_ident(), [], set()
    subject, done = rx.Subject(), asyncio.Event()

    def see(number):
        seen.append(number)
        threads.add(threading.get_ident())

    subject.pipe(ops.observe_on(on_loop())).subscribe(see, on_completed=done.set)

    def emit():
        for number in range(200):
            subject.on_next(number)
        subject.on_completed()

    await asyncio.to_thread(emit)
    await done.wait()
    assert seen == list(range(200))
    assert threads == {loop_thread}


async def test_a_scheduled_action_that_is_disposed_never_runs():
    executor, ran = on_loop(), []
    executor.schedule(lambda *_: ran.append("disposed")).dispose()
    executor.schedule_relative(0.01, lambda *_: ran.append("disposed later")).dispose()
    executor.schedule_relative(0.02, lambda *_: ran.append("kept"))
    await conformance.until(lambda: "kept" in ran)
    assert ran == ["kept"]


async def test_schedule_periodic_comes_again():
    ticks = []
    timer = on_loop().schedule_periodic(0.001, lambda count: ticks.append(count) or (count or 0) + 1)
    await conformance.until(lambda: len(ticks) >= 3)
    timer.dispose()


def test_outside_of_a_loop_it_has_none_to_schedule_on():
    executor = on_loop()
    with pytest.raises(NotOpen, match="inside a coroutine"):
        executor.schedule(lambda *_: None)
