"""What passes through the stages in which jobs wait, or are worked on together, is counted and timed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rxjobs as rj
from rxjobs.counted import Counted
from rxjobs.events import StageWorked
from rxjobs.testing import MemorySource, a_job
from rxjobs.testing.watched import Observed, runs
from tests.virtual import on_virtual_time


def pulled(count: int, *stages: Any) -> Any:
    jobs = [a_job(args={"key": number % 2}) for number in range(count)]
    return rj.pull(MemorySource(jobs), max_demand=20).pipe(*stages, rj.ack())


def stage(observed: Observed, name: str) -> Counted:
    (found,) = [one for scope in observed.running.scopes for one in scope.stages if one.name == name]
    return found


def numbers(observed: Observed, name: str) -> tuple[int, int, int, int]:
    """What went in, went out, was dropped, and waits."""
    one = stage(observed, name)
    return one.went_in, one.went_out, one.dropped, one.waiting


def told(observed: Observed, name: str) -> list[tuple[float, bool, int]]:
    """Of each event: seconds, whether it is a sample, and how many jobs it is about."""
    events = [event for event in observed.events if isinstance(event, StageWorked) and event.stage == name]
    return [(round(event.duration / 1e9, 3), event.is_sample, 1 + len(event.others)) for event in events]


@on_virtual_time
async def test_a_buffer_tells_how_long_each_list_took_to_gather_and_which_of_its_jobs_waited_long():
    async with runs(pulled(5, rj.buffer(3, 1.0), rj.complete())) as observed:
        await asyncio.sleep(0.5)
        assert numbers(observed, "buffer") == (5, 3, 0, 2)
        assert stage(observed, "buffer").room == 3
        await asyncio.sleep(1)
        assert numbers(observed, "buffer") == (5, 5, 0, 0)
        assert told(observed, "buffer") == [(0.0, True, 1), (1.0, True, 1), (1.0, False, 1)]


@on_virtual_time
async def test_what_still_waits_in_a_buffer_when_its_pipeline_is_killed_is_counted_as_dropped():
    async with runs(pulled(2, rj.buffer(3, 60.0), rj.complete())) as observed:
        await asyncio.sleep(0.5)
        buffer = stage(observed, "buffer")
        for scope in observed.running.scopes:
            scope.kill()
        assert (buffer.went_in, buffer.went_out, buffer.dropped, buffer.waiting) == (2, 0, 2, 0)


@on_virtual_time
async def test_a_rate_limit_tells_how_long_jobs_waited_for_their_turn():
    async with runs(pulled(3, rj.rate_limit(1, per=2), rj.complete())) as observed:
        await asyncio.sleep(1)
        assert numbers(observed, "rate_limit") == (3, 1, 0, 2)
        await asyncio.sleep(5)
        assert numbers(observed, "rate_limit") == (3, 3, 0, 0)
        assert told(observed, "rate_limit") == [(2.0, False, 1), (4.0, False, 1)]


@on_virtual_time
async def test_a_traced_stage_tells_of_every_job_also_where_none_waits():
    async with runs(pulled(3, rj.rate_limit(9, traced=True), rj.buffer(3, 60, traced=True), rj.complete())) as observed:
        await asyncio.sleep(1)
        assert told(observed, "rate_limit") == [(0.0, False, 1)] * 3
        assert told(observed, "buffer") == [(0.0, True, 1), (0.0, False, 1), (0.0, False, 1)]


@on_virtual_time
async def test_a_key_that_cannot_be_made_is_an_error_of_its_stage():
    def key(job: rj.Job) -> object:
        return job.args["nothing"]

    for stage_of in (rj.rate_limit(5, by=key), rj.partition(2, by=key, branch=rj.complete())):
        async with runs(pulled(1, stage_of)) as observed:
            await asyncio.sleep(0.1)
            (one,) = [one for scope in observed.running.scopes for one in scope.stages if one.went_in]
            assert (one.went_in, one.went_out, one.errors) == (1, 0, 1)


@on_virtual_time
async def test_a_call_for_many_jobs_is_told_once_with_all_of_them():
    async def write(jobs: list[rj.Job]) -> None:
        await asyncio.sleep(2)

    async with runs(pulled(6, rj.buffer(3, 1.0), rj.execute_batch(write))) as observed:
        await asyncio.sleep(1)
        assert numbers(observed, "execute_batch") == (3, 0, 0, 3)
        await asyncio.sleep(9)
        assert numbers(observed, "execute_batch") == (6, 6, 0, 0)
        calls = [one[1:] for one in told(observed, "execute_batch")]
        assert calls == [(True, 3), (True, 3)]


@pytest.mark.parametrize(
    "dispatcher",
    [
        lambda branch: rj.balance(branch, name="to"),
        lambda branch: rj.broadcast(branch, branch, name="to"),
        lambda branch: rj.partition(1, by="args.key", branch=branch, name="to"),
    ],
    ids=["balance", "broadcast", "partition"],
)
def test_a_dispatcher_tells_how_long_jobs_waited_for_a_branch_with_room(dispatcher):
    async def wait(job: rj.Job) -> dict[str, Any]:
        await asyncio.sleep(2)
        return {}

    @on_virtual_time
    async def check() -> None:
        branch = rj.branch(rj.enrich(wait, concurrency=1), rj.complete(), max_demand=1)
        async with runs(pulled(3, dispatcher(branch))) as observed:
            await asyncio.sleep(1)
            assert numbers(observed, "to") == (3, 1, 0, 2)
            await asyncio.sleep(9)
            assert numbers(observed, "to") == (3, 3, 0, 0)
            assert [seconds for seconds, *_ in told(observed, "to")] == [2.0, 4.0]

    check()
