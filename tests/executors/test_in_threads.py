import asyncio
import contextvars
import gc
import logging
import threading
import time
import types
import weakref

import msgspec
import pytest

from rxjobs.errors import InvalidOption
from rxjobs.executors.in_threads import in_threads
from rxjobs.stopping import STOP, left_behind
from rxjobs.testing import conformance_executor as conformance
from rxjobs.testing import conformance_jobs as jobs
from rxjobs.testing.conformance_executor import call_of, caught, until


class Block:
    """A function that runs until it is released, and cannot be stopped."""

    def __init__(self):
        self.running = threading.Event()
        self.released = threading.Event()

    def call(self):
        def block():
            self.running.set()
            self.released.wait(30)

        return call_of(block)


@pytest.fixture
def block():
    block = Block()
    yield block
    block.released.set()


OTHERS: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def others(monkeypatch):
    """The threads that were there before: those of apps that other tests never closed."""
    monkeypatch.setitem(globals(), "OTHERS", set(threading.enumerate()))


def threads() -> int:
    """How many threads there are that run jobs of this test."""
    return [thread.name for thread in threading.enumerate() if thread not in OTHERS].count("rxjobs-thread")


async def abandon(executor, block):
    """Start a call that cannot be stopped, and cancel it."""
    block.running.clear()
    task = asyncio.create_task(caught(executor, block.call()))
    await until(block.running.is_set)
    task.cancel()
    assert isinstance(await task, asyncio.CancelledError)


async def test_it_keeps_the_laws_of_executors():
    await conformance.executor(lambda: in_threads(4), size=4)


@pytest.mark.parametrize("n", [0, -1, True, "4"])
def test_a_size_that_is_none_is_refused(n):
    with pytest.raises(InvalidOption, match="in_threads: n is a whole number"):
        in_threads(n)


async def test_what_the_caller_has_in_its_context_holds_in_the_thread():
    variable = contextvars.ContextVar("variable")
    variable.set("mine")
    executor = in_threads(1)
    assert await executor.run(call_of(lambda: variable.get())) == "mine"

    async def read():
        return variable.get()

    assert await executor.run(call_of(read)) == "mine"
    await executor.close()


async def test_a_job_may_start_a_loop_of_its_own():
    executor = in_threads(1)
    assert await executor.run(call_of(lambda: asyncio.run(jobs.add_soon(1, 2)))) == 3
    await executor.close()


async def test_threads_are_started_as_they_are_needed():
    executor = in_threads(8)
    for _ in range(5):
        await executor.run(call_of(jobs.add, 1))
    assert threads() == 1
    await executor.close()
    await until(lambda: threads() == 0)


async def test_a_cancelled_call_that_runs_on_is_abandoned_replaced_and_told_once(block, caplog):
    executor = in_threads(1)
    await abandon(executor, block)
    assert executor.abandoned == 1
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "block" in record.getMessage()
    assert "cannot be stopped" in record.getMessage()
    assert await executor.run(call_of(jobs.add, 1)) == 1
    block.released.set()
    await until(lambda: executor.abandoned == 0)
    await executor.close()


async def test_beyond_the_spare_threads_calls_wait_until_an_abandoned_one_ends(block):
    executor = in_threads(1, spare=1)
    await abandon(executor, block)
    await abandon(executor, block)
    assert executor.abandoned == 2
    task = asyncio.create_task(executor.run(call_of(jobs.add, 1)))
    await asyncio.wait({task}, timeout=0.05)
    assert not task.done()
    block.released.set()
    assert await task == 1
    await until(lambda: executor.abandoned == 0)
    await executor.close()


async def test_an_abandoned_thread_that_ends_leaves_no_more_than_n(block):
    executor = in_threads(2)
    await abandon(executor, block)
    await abandon(executor, block)
    block.released.set()
    await until(lambda: executor.abandoned == 0)
    await conformance.runs_no_more_than_its_size(executor, 2)
    await executor.close()
    await until(lambda: threads() == 0)


async def test_a_cancelled_coroutine_is_stopped_in_its_thread(caplog):
    ended = threading.Event()
    running = threading.Event()

    async def sleep():
        try:
            running.set()
            await asyncio.sleep(30)
        finally:
            ended.set()

    executor = in_threads(1)
    task = asyncio.create_task(caught(executor, call_of(sleep)))
    await until(running.is_set)
    task.cancel()
    await task
    await until(ended.is_set)
    await until(lambda: executor.abandoned == 0)
    assert not caplog.records
    await executor.close()


async def test_a_call_that_is_cancelled_while_it_waits_never_starts(block):
    executor, started = in_threads(1), []
    blocked = asyncio.create_task(executor.run(block.call()))
    await until(block.running.is_set)
    waiting = asyncio.create_task(caught(executor, call_of(lambda: started.append(1))))
    await asyncio.sleep(0)
    waiting.cancel()
    assert isinstance(await waiting, asyncio.CancelledError)
    assert executor.abandoned == 0
    block.released.set()
    await blocked
    await executor.run(call_of(jobs.add, 1))
    assert started == []
    await executor.close()


async def test_a_job_that_raises_cancelled_error_is_not_abandoned(caplog):
    executor = in_threads(2)
    for _ in range(100):
        error = await caught(executor, call_of(jobs.fail, "asyncio.exceptions.CancelledError"))
        assert isinstance(error, asyncio.CancelledError)
        assert executor.abandoned == 0
    assert not caplog.records
    await executor.close()


def test_a_loop_that_is_closed_while_a_job_runs_breaks_nothing(block, caplog):
    executor = in_threads(1, spare=0)

    async def begin():
        task = asyncio.create_task(caught(executor, block.call()))
        await until(block.running.is_set)
        return task

    asyncio.run(begin())
    caplog.clear()
    block.released.set()
    assert asyncio.run(executor.run(call_of(jobs.add, 1))) == 1
    assert executor.abandoned == 0
    assert not caplog.records


async def test_a_job_that_has_ended_is_let_go_at_once():
    executor = in_threads(1)
    gc.disable()
    try:
        for fails in (False, True):

            def function(fails=fails):
                if fails:
                    raise ValueError("wrong")

            gone = weakref.ref(function)
            await caught(executor, call_of(function))
            del function
            # the thread itself lets go a moment later
            await until(lambda gone=gone: gone() is None)
    finally:
        gc.enable()
    await executor.close()


async def test_jobs_that_wait_when_it_is_closed_still_run(block):
    executor = in_threads(1)
    tasks = [asyncio.create_task(executor.run(call)) for call in (block.call(), call_of(jobs.add, 1), call_of(jobs.add, 2))]
    await until(block.running.is_set)
    await executor.close()
    assert await executor.run(call_of(jobs.add, 3)) == 3
    block.released.set()
    assert await asyncio.gather(*tasks) == [None, 1, 2]
    await executor.close()


async def test_a_hundred_memory_errors_leave_it_usable():
    executor = in_threads(2)
    errors = await asyncio.gather(*(caught(executor, call_of(jobs.fail, "MemoryError")) for _ in range(100)))
    assert {type(error) for error in errors} == {MemoryError}
    assert await executor.run(call_of(jobs.add, 1)) == 1
    await executor.close()


def test_an_abandoned_thread_does_not_keep_the_interpreter_from_exiting(program):
    process = program(
        """
import asyncio
from rxjobs.executors.in_threads import in_threads
from rxjobs.testing.conformance_executor import call_of, caught, until
import threading

running = threading.Event()

def block():
    running.set()
    threading.Event().wait(60)

async def main():
    executor = in_threads(1)
    task = asyncio.create_task(caught(executor, call_of(block)))
    await until(running.is_set)
    task.cancel()
    await task
    await executor.close()

asyncio.run(main())
print("end", flush=True)
"""
    )
    assert process.stdout.readline() == "end\n"
    began = time.monotonic()
    assert process.wait(60) == 0
    assert time.monotonic() - began < 30  # the thread would take a minute


async def test_a_running_call_that_is_asked_to_stop_is_waited_for_and_sees_it(block):
    seen = []

    def watch(job):
        block.running.set()
        block.released.wait(30)
        seen.append(job.cancelled)
        return 5

    executor = in_threads(1)
    call = call_of(watch, payload_of=(jobs.add, 1))
    call = msgspec.structs.replace(
        call, job=msgspec.structs.replace(call.job, hold=types.SimpleNamespace(cancelled=False, recalled=None))
    )
    task = asyncio.create_task(executor.run(call))
    await until(block.running.is_set)
    for _ in range(2):
        task.cancel(STOP)
        await asyncio.wait({task}, timeout=0.05)
        assert not task.done()
    assert executor.abandoned == 0
    block.released.set()
    assert await task == 5
    assert seen == [True]
    await executor.close()


async def test_a_call_that_is_asked_to_stop_while_it_waits_never_starts(block):
    executor, started = in_threads(1), []
    blocked = asyncio.create_task(executor.run(block.call()))
    await until(block.running.is_set)
    waiting = asyncio.create_task(caught(executor, call_of(lambda: started.append(1))))
    await asyncio.sleep(0)
    waiting.cancel(STOP)
    assert isinstance(await waiting, asyncio.CancelledError)
    block.released.set()
    await blocked
    await executor.run(call_of(jobs.add, 1))
    assert started == []
    await executor.close()


async def test_a_coroutine_that_is_asked_to_stop_ends_in_its_thread_first():
    ended, running = [], threading.Event()

    async def sleep():
        try:
            running.set()
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.1)
            ended.append(1)

    executor = in_threads(1)
    task = asyncio.create_task(caught(executor, call_of(sleep)))
    await until(running.is_set)
    task.cancel(STOP)
    assert isinstance(await task, asyncio.CancelledError)
    assert ended == [1]
    await executor.close()


async def test_what_was_abandoned_is_known_until_it_ends(block):
    executor = in_threads(1)
    assert not executor.is_worn_out
    await abandon(executor, block)
    assert len(left_behind()) == 1
    assert executor.is_worn_out
    block.released.set()
    await until(lambda: left_behind() == [])
    await until(lambda: not executor.is_worn_out)
    await executor.close()
