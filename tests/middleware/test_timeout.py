"""A run that takes too long."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

import rxjobs as rj
from rxjobs.middleware.timeout import timeout
from rxjobs.testing import MemorySource, a_job, job_type
from tests.virtual import on_virtual_time


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
