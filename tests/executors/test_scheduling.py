import asyncio
import threading
from concurrent import futures
from datetime import UTC, datetime, timedelta

import pytest
import reactivex as rx
from reactivex import operators as ops

from rxjobs.errors import InvalidOption
from rxjobs.executors.in_pool import in_pool
from rxjobs.executors.in_processes import in_processes
from rxjobs.executors.in_threads import in_threads
from rxjobs.testing import conformance_jobs as jobs
from rxjobs.testing.conformance_executor import call_of, until


@pytest.fixture(params=["threads", "pool"])
async def executor(request):
    with futures.ThreadPoolExecutor(4) as pool:
        executor = in_threads(4) if request.param == "threads" else in_pool(pool)
        yield executor
        await executor.close()


async def test_observe_on_keeps_the_order_and_leaves_the_loop(executor):
    seen, threads, done = [], set(), threading.Event()

    def see(number):
        seen.append(number)
        threads.add(threading.get_ident())

    rx.from_iterable(range(200)).pipe(ops.observe_on(executor)).subscribe(see, on_completed=done.set)
    await until(done.is_set)
    assert seen == list(range(200))
    assert threading.get_ident() not in threads


async def test_a_disposed_action_never_runs(executor):
    ran, last = [], threading.Event()
    executor.schedule_relative(0.3, lambda *_: ran.append("disposed")).dispose()
    executor.schedule_relative(0.4, lambda *_: last.set())
    await until(last.is_set)
    assert ran == []


async def test_actions_come_when_they_are_due(executor):
    came, began = {}, datetime.now(UTC)

    def come(name):
        return lambda *_: came.update({name: datetime.now(UTC) - began})

    executor.schedule_absolute(began + timedelta(seconds=0.06), come("absolute"))
    executor.schedule_relative(timedelta(seconds=0.03), come("relative"))
    executor.schedule_relative(-1, come("at once"))
    await until(lambda: len(came) == 3)
    # in which order a busy machine's threads come to it is another matter: none comes early
    assert came["relative"] > timedelta(seconds=0.025)
    assert came["absolute"] > timedelta(seconds=0.055)


async def test_an_action_gets_its_state_and_may_schedule_the_next(executor):
    seen, done = [], threading.Event()

    def count(scheduler, state):
        seen.append(state)
        return scheduler.schedule(count, state + 1) if state < 3 else done.set()

    executor.schedule(count, 0)
    await until(done.is_set)
    assert seen == [0, 1, 2, 3]


async def test_timers_share_one_thread_which_ends_with_the_last_of_them():
    executor, done = in_threads(1), []
    for number in range(200):
        executor.schedule_relative(0.3, lambda *_, number=number: done.append(number))
    assert [thread.name for thread in threading.enumerate()].count("rxjobs-timers") == 1
    await until(lambda: len(done) == 200)
    await until(lambda: "rxjobs-timers" not in {thread.name for thread in threading.enumerate()})
    assert done == list(range(200))
    await executor.close()


async def test_an_action_that_raises_is_told_and_the_threads_go_on(executor, caplog):
    def action(*_):
        raise SystemExit(1)

    executor.schedule(action)
    executor.schedule_relative(0.001, action)
    await until(lambda: len(caplog.records) == 2)
    assert await executor.run(call_of(jobs.add, 1)) == 1


async def test_a_pool_that_is_shut_down_does_not_end_the_timers(caplog):
    with futures.ThreadPoolExecutor(1) as pool:
        executor = in_pool(pool)
    executor.schedule_relative(0.001, lambda *_: None)
    done, others = threading.Event(), in_threads(1)
    others.schedule_relative(0.01, lambda *_: done.set())
    await until(done.is_set)
    assert "could not be scheduled" in caplog.text
    await others.close()


@pytest.mark.parametrize("make", [lambda: in_processes(1), lambda: in_pool(futures.ProcessPoolExecutor(1))])
def test_processes_are_no_scheduler_and_say_so(make):
    with pytest.raises(InvalidOption, match="in_threads"):
        make().schedule(lambda *_: None)
    with pytest.raises(InvalidOption, match="in_threads"):
        make().schedule_relative(1, lambda *_: None)
    with pytest.raises(InvalidOption, match="in_threads"):
        make().schedule_absolute(datetime.now(UTC), lambda *_: None)


def test_sources_that_time_themselves_take_it():
    executor = in_threads(2)
    assert rx.interval(0.005, scheduler=executor).pipe(ops.take(3), ops.to_list()).run() == [0, 1, 2]
    asyncio.run(executor.close())
