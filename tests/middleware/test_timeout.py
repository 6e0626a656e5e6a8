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
from rxjobs.stopping import STOP, left_behind
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


@on_virtual_time
async def test_a_run_has_its_time_in_the_task_that_performs_it():
    """No task is made for it: what asyncio ties to a task, such as a timeout of the job's own, is tied to this one."""
    seen = list[object]()

    async def look() -> None:
        for _ in range(2):
            seen.append(asyncio.current_task())
            await asyncio.sleep(1)

    definition = job_type(look, middleware=(timeout(5),))
    await definition.perform(a_job(definition=definition, attempt=1), None)
    assert seen == [asyncio.current_task()] * 2


@pytest.mark.parametrize("inner", [4, 5, 6])
@on_virtual_time
async def test_a_timeout_inside_a_job_is_its_own_unless_it_comes_later(inner):
    """Where both are over at once it is one of them, and nothing of either is left in the task."""

    async def nested() -> str:
        try:
            async with asyncio.timeout(inner):
                await asyncio.sleep(100)
        except TimeoutError:
            return "inner"
        return "none"

    definition = job_type(nested, middleware=(timeout(5),), name="nested")
    finished = await definition.perform(a_job(definition=definition, attempt=1), None)
    if inner < 5:
        assert finished.outcome == rj.Complete("inner")
    elif inner > 5:
        assert finished.outcome.failure.message == "nested ran longer than its timeout of 5 s"
    else:
        assert finished.outcome == rj.Complete("inner") or finished.outcome.failure.type == "TimeoutError"
    assert asyncio.current_task().cancelling() == 0


@on_virtual_time
async def test_a_timeout_of_the_clean_up_after_a_timeout_holds():
    cleaned = list[str]()

    async def careful() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            try:
                async with asyncio.timeout(0.5):
                    await asyncio.sleep(100)
            except TimeoutError:
                cleaned.append("in time")

    definition = job_type(careful, middleware=(timeout(5),), name="careful")
    finished = await definition.perform(a_job(definition=definition, attempt=1), None)
    assert cleaned == ["in time"]
    assert finished.outcome.failure.message == "careful ran longer than its timeout of 5 s"
    assert asyncio.current_task().cancelling() == 0


@on_virtual_time
async def test_a_run_that_ends_at_the_very_moment_its_time_is_over_leaves_nothing_behind():
    async def punctual() -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(5)
        return "done"

    definition = job_type(punctual, middleware=(timeout(5),))
    finished = await definition.perform(a_job(definition=definition, attempt=1), None)
    assert finished.outcome == rj.Complete("done")
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(10)  # nothing is cancelled later


@on_virtual_time
async def test_a_run_that_is_stopped_just_before_its_time_is_over_is_released():
    definition = job_type(asyncio.sleep, middleware=(timeout(5),), name="sleep")
    job = a_job(definition=definition, args={"delay": 100}, attempt=1)
    task = asyncio.create_task(definition.perform(job, None))
    asyncio.get_running_loop().call_later(4.999, task.cancel, STOP)
    assert (await task).outcome == rj.Release(reason="its run was stopped")


@on_virtual_time
async def test_what_was_cut_off_and_cleans_up_is_not_cancelled_again_when_it_is_asked_to_stop():
    cleaned = list[float]()

    async def careful() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.8)
            cleaned.append(asyncio.get_running_loop().time())

    definition = job_type(careful, middleware=(timeout(5),), name="careful")
    task = asyncio.create_task(definition.perform(a_job(definition=definition, attempt=1), None))
    asyncio.get_running_loop().call_later(5.4, task.cancel, STOP)
    finished = await task
    assert 5.7 < cleaned[0] < 5.9
    assert finished.outcome.failure.type == "TimeoutError"


@on_virtual_time
async def test_a_run_that_waits_for_a_task_which_does_not_stop_is_left_behind():
    """Its own code is not reached by a cancellation then: that task is, and goes on."""
    let_go = asyncio.Event()

    async def child() -> None:
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()

    async def parent() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    async def waits() -> None:
        await asyncio.create_task(child())

    for function in (parent, waits):
        definition = job_type(function, middleware=(timeout(5),), name="parent")
        loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        finished = await definition.perform(a_job(definition=definition, attempt=1), None)
        assert 5 <= loop.time() - began < 5 + 2
        assert finished.outcome.failure.message == "parent ran longer than its timeout of 5 s, and does not stop"
    assert len(left_behind()) == 2
    let_go.set()
    await asyncio.sleep(0.1)
    assert left_behind() == []


@on_virtual_time
async def test_a_run_that_never_waits_for_anything_but_its_turn_is_left_behind_too():
    let_go = list[bool]()

    async def spins() -> None:
        while not let_go:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
                await asyncio.sleep(0.01)

    definition = job_type(spins, middleware=(timeout(5),), name="spins")
    finished = await definition.perform(a_job(definition=definition, attempt=1), None)
    assert finished.outcome.failure.message == "spins ran longer than its timeout of 5 s, and does not stop"
    let_go.append(True)
    await asyncio.sleep(0.1)
    assert left_behind() == []


@on_virtual_time
async def test_what_the_job_waits_for_is_cancelled_with_it():
    """As by a task: a task that it awaits, a gathering, a future."""
    ended = list[str]()

    async def child(name: str) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            ended.append(name)
            raise

    async def gathers() -> None:
        await asyncio.gather(child("a"), child("b"))

    async def awaits() -> None:
        await asyncio.create_task(child("c"))

    for function in (gathers, awaits):
        definition = job_type(function, middleware=(timeout(5),), name="parent")
        finished = await definition.perform(a_job(definition=definition, attempt=1), None)
        assert finished.outcome.failure.message == "parent ran longer than its timeout of 5 s"
    assert sorted(ended) == ["a", "b", "c"]


@on_virtual_time
async def test_the_error_of_a_task_that_the_job_waits_for_is_the_jobs():
    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError("no")

    async def awaits() -> None:
        await asyncio.create_task(fails())

    definition = job_type(awaits, middleware=(timeout(5),))
    finished = await definition.perform(a_job(definition=definition, attempt=1), None)
    assert finished.outcome.failure.message == "no"


@on_virtual_time
async def test_an_error_in_the_clean_up_after_a_timeout_is_what_the_run_ended_with():
    async def clumsy() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            raise ValueError("no")

    definition = job_type(clumsy, middleware=(timeout(5),))
    finished = await definition.perform(a_job(definition=definition, attempt=1), None)
    assert finished.outcome.failure.type == "ValueError"
    assert asyncio.current_task().cancelling() == 0


@on_virtual_time
async def test_a_middleware_may_give_anything_that_can_be_awaited():
    def quick(job: rj.Job, call_next: object) -> asyncio.Future[rj.Outcome]:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(1, future.set_result, rj.Complete("quick"))
        return future

    definition = job_type(asyncio.sleep, middleware=(timeout(5), quick), name="sleep")
    finished = await definition.perform(a_job(definition=definition, attempt=1), None)
    assert finished.outcome == rj.Complete("quick")
