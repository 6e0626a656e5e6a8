"""A run that takes too long."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime

import pytest

import rxjobs as rj
from rxjobs.middleware.timeout import timeout
from rxjobs.stopping import left_behind
from rxjobs.testing import MemorySource, a_job, job_type
from rxjobs.testing.watched import runs
from tests.virtual import on_virtual_time
from tests.waiting import until


@on_virtual_time
async def test_a_run_that_takes_longer_is_a_failed_attempt():
    loop, ended = asyncio.get_running_loop(), list[float]()

    async def long() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(loop.time())

    definition = job_type(long, middleware=(timeout(5),), name="long")
    finished = await definition.perform(a_job(definition=definition, attempt=1), None)
    assert isinstance(finished.outcome, rj.Retry)
    assert finished.outcome.failure.type == "TimeoutError"
    assert finished.outcome.failure.message == "long ran longer than its timeout of 5 s"
    assert 5 <= ended[0] < 5.1


@on_virtual_time
async def test_a_run_that_ends_in_time_is_left_alone():
    async def short() -> str:
        await asyncio.sleep(4.9)
        return "done"

    definition = job_type(short, middleware=(timeout(5),))
    finished = await definition.perform(a_job(definition=definition, attempt=1), None)
    assert finished.outcome == rj.Complete("done")


@on_virtual_time
async def test_a_timeout_error_of_the_job_itself_is_its_own():
    async def fails() -> None:
        raise TimeoutError("the peer did not answer")

    definition = job_type(fails, middleware=(timeout(5),))
    finished = await definition.perform(a_job(definition=definition, attempt=1), None)
    assert finished.outcome.failure.message == "the peer did not answer"


@on_virtual_time
async def test_a_timeout_error_of_another_middleware_is_its_own():
    async def impatient(job: rj.Job, call_next: object) -> rj.Outcome:
        raise TimeoutError("no room in the pool")

    definition = job_type(asyncio.sleep, middleware=(timeout(5), impatient))
    finished = await definition.perform(a_job(definition=definition, attempt=1), None)
    assert finished.outcome.failure.message == "no room in the pool"


@on_virtual_time
async def test_a_run_that_is_stopped_is_released_and_not_timed_out():
    definition = job_type(asyncio.sleep, middleware=(timeout(5),), name="sleep")
    job = a_job(definition=definition, args={"delay": 100}, attempt=1)
    task = asyncio.create_task(definition.perform(job, None))
    await asyncio.sleep(1)
    task.cancel()
    finished = await task
    assert finished.outcome == rj.Release(reason="its run was stopped")


@pytest.mark.parametrize("seconds", [2, 20])
@on_virtual_time
async def test_the_job_knows_its_deadline_and_that_it_was_cut_off(seconds):
    seen = list[rj.Job]()

    async def look() -> None:
        seen.append(rj.current_job())
        await asyncio.sleep(10)

    definition = job_type(look, middleware=(timeout(seconds),))
    source = MemorySource([a_job(definition=definition)])
    before = datetime.now(UTC)
    rj.pull(source, max_demand=1).pipe(rj.execute(), rj.ack()).subscribe()
    await asyncio.sleep(15)
    assert seconds - 1 < (seen[0].deadline - before).total_seconds() < seconds + 10
    assert seen[0].cancelled is (seconds < 10)


def stubborn_until(let_go: asyncio.Event) -> rj.Job:
    async def stubborn() -> None:
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()

    return a_job(definition=job_type(stubborn, middleware=(timeout(5),), name="stubborn"), attempt=1)


@on_virtual_time
async def test_a_run_that_does_not_stop_is_waited_for_a_moment_and_then_left_behind(caplog):
    loop, let_go = asyncio.get_running_loop(), asyncio.Event()
    job = stubborn_until(let_go)
    finished = await job.definition.perform(job, None)
    assert 5 <= loop.time() < 5 + 2
    assert isinstance(finished.outcome, rj.Retry)
    assert finished.outcome.failure.type == "TimeoutError"
    assert finished.outcome.failure.message == "stubborn ran longer than its timeout of 5 s, and does not stop"
    assert f"job {job.id} (stubborn) took longer than 5 s, was cancelled and does not stop" in caplog.text
    assert len(left_behind()) == 1
    let_go.set()
    await asyncio.sleep(0.1)
    assert left_behind() == []


@on_virtual_time
async def test_a_run_that_does_not_stop_gives_its_slot_up():
    let_go = asyncio.Event()
    source = MemorySource([stubborn_until(let_go) for _ in range(3)])
    rj.pull(source, max_demand=1).pipe(rj.execute(concurrency=1), rj.ack()).subscribe()
    await asyncio.sleep(3 * 6.5)
    assert [type(one.outcome) for one in source.settled] == [rj.Retry] * 3
    let_go.set()


@on_virtual_time
async def test_work_that_is_done_all_the_same_when_its_time_is_over_counts():
    async def late() -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
        return "done"

    definition = job_type(late, middleware=(timeout(5),))
    finished = await definition.perform(a_job(definition=definition, attempt=1), None)
    assert finished.outcome == rj.Complete("done")


@on_virtual_time
async def test_a_run_that_is_stopped_is_cancelled_once_and_may_clean_up():
    cleaned = list[float]()

    async def careful() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.5)
            cleaned.append(asyncio.get_running_loop().time())

    definition = job_type(careful, middleware=(timeout(5),))
    task = asyncio.create_task(definition.perform(a_job(definition=definition, attempt=1), None))
    await asyncio.sleep(1)
    task.cancel()
    assert (await task).outcome == rj.Release(reason="its run was stopped")
    assert cleaned == [1.5]


async def test_a_thread_that_runs_on_is_told_of_in_the_failure():
    let_go = threading.Event()
    definition = job_type(lambda: let_go.wait(10), on=rj.in_threads(1), middleware=(timeout(0.1),), name="slow")
    finished = await definition.perform(a_job(definition=definition, attempt=1), None)
    assert finished.outcome.failure.message == "slow ran longer than its timeout of 0.1 s, and does not stop"
    let_go.set()


async def test_a_thread_that_is_asked_to_stop_ends_as_it_ends():
    """It cannot be stopped, so that its job is given to nobody before."""
    running, let_go = threading.Event(), threading.Event()

    def work() -> str:
        running.set()
        let_go.wait(10)
        return "cancelled" if rj.current_job().cancelled else "not"

    definition = job_type(work, on=rj.in_threads(1), middleware=(timeout(30),))
    source = MemorySource([a_job(definition=definition)])
    async with runs(rj.pull(source, max_demand=1).pipe(rj.execute(), rj.ack()), grace=0) as observed:
        await until(running.is_set)
        stopping = asyncio.create_task(observed.running.stop(0))
        await asyncio.sleep(0.2)
        assert observed.running.running_ids
        assert source.settled == []
        let_go.set()
        await stopping
    assert [one.outcome for one in source.settled] == [rj.Complete("cancelled")]


async def test_the_time_of_a_thread_that_is_asked_to_stop_is_limited_as_before(caplog):
    running, let_go = threading.Event(), threading.Event()

    def work() -> None:
        running.set()
        let_go.wait(10)

    definition = job_type(work, on=rj.in_threads(1), middleware=(timeout(0.4),), name="slow")
    source = MemorySource([a_job(definition=definition)])
    async with runs(rj.pull(source, max_demand=1).pipe(rj.execute(), rj.ack()), grace=0):
        await until(running.is_set)
    let_go.set()
    assert [one.outcome.failure.type for one in source.settled] == ["TimeoutError"]


@pytest.mark.parametrize("place", [rj.in_threads, rj.in_processes])
async def test_a_deadline_counts_from_where_the_job_has_a_place(place):
    executor = place(1)
    definition = job_type(left_in_the_end, on=executor, middleware=(timeout(20),))
    source = MemorySource([a_job(definition=definition, args={"seconds": 0.5}, payload='{"seconds": 0.5}') for _ in range(3)])
    async with runs(rj.pull(source, max_demand=3).pipe(rj.execute(concurrency=3), rj.ack()), grace=30):
        await until(lambda: len(source.settled) == 3)
    assert all(19 < one.outcome.result < 19.6 for one in source.settled), [one.outcome for one in source.settled]
    await executor.close()


def left_in_the_end(seconds: float) -> float:
    """How many seconds a job has left when it has taken so many."""
    time.sleep(seconds)
    deadline = rj.current_job().deadline
    assert deadline is not None
    return (deadline - datetime.now(UTC)).total_seconds()


async def test_a_run_is_cut_off_in_time_whenever_it_began():
    """It is looked at once while it waits, and then when its own time is over."""
    executor, let_go, begun = rj.in_threads(1), threading.Event(), list[float]()

    def work() -> None:
        begun.append(time.monotonic())
        let_go.wait(10 if len(begun) > 1 else 0.7)

    first, second = (job_type(work, on=executor, middleware=(timeout(seconds),), name="slow") for seconds in (5, 0.5))
    running = asyncio.create_task(first.perform(a_job(definition=first, attempt=1), None))
    await until(lambda: begun)
    finished = await second.perform(a_job(definition=second, attempt=1), None)
    ended = time.monotonic()
    assert finished.outcome.failure.type == "TimeoutError"
    assert 0.5 <= ended - begun[1] < 5
    let_go.set()
    await running
    await executor.close()
