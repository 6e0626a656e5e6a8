from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from reactivex import compose
from reactivex import operators as ops

import rxjobs as rj
from rxjobs.testing import MemorySource, a_job, job_type, marbles
from rxjobs.testing.watched import runs
from tests.virtual import on_virtual_time


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def job(seconds: float, **fields: Any) -> rj.Job:
    return a_job(definition=job_type(sleep), args={"seconds": seconds}, attempt=1, **fields)


def test_jobs_come_out_finished_as_they_end():
    marbles(rj.execute(), "ab----|", "--B-A-|", values={"a": job(4), "b": job(1), "A": rj.Complete, "B": rj.Complete})


def test_so_many_run_at_once():
    values = {letter: job(2) for letter in "abc"}
    marbles(rj.execute(concurrency=1), "(abc)|", "--A-B-(C|)", values=values)


def test_lists_are_taken_one_by_one():
    values = {letter: job(2) for letter in "ab"}
    marbles(rj.execute(), "[ab]--|", "--(AB)|", values=values)


def test_what_is_finished_passes():
    marbles(rj.execute(), "a-B---|", "--B-A-|", values={"a": job(4)})


def test_a_job_of_no_app_is_a_failed_attempt_that_says_what_to_do():
    (finished,) = marbles(rj.execute(), "a|", "A|", values={"A": rj.Retry})
    assert finished.outcome.failure.type == "rxjobs.errors.UnknownJobType"
    assert "use rj.execute(app=app)" in finished.outcome.failure.message


def test_with_an_app_a_job_of_no_source_of_its_own_is_found_by_its_name():
    app = rj.App("postgresql://nowhere/nothing")

    @app.job(name="add")
    async def add(a: int) -> int:
        return a + 1

    values = {
        "a": a_job(type="add", args={"a": 1}, attempt=1),
        "A": rj.Complete(2),
        "b": a_job(type="other", attempt=1),
        "B": rj.Retry,
    }
    marbles(rj.execute(app=app), "a-b|", "A-B|", values=values)


def test_what_is_no_job_breaks_the_pipeline_and_says_what_to_do():
    with pytest.raises(AssertionError, match="an operator before it made something else of them"):
        marbles(compose(ops.map(lambda job: job.args), rj.execute()), "a|", "A|")


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, None])
def test_what_cannot_be_is_refused(concurrency):
    with pytest.raises(rj.InvalidOption, match="concurrency is a whole number of at least 1"):
        rj.execute(concurrency=concurrency)


@on_virtual_time
async def test_nothing_begins_once_the_lease_is_over_though_nobody_has_said_so_yet():
    """A process that was stopped for longer than its lease goes on with what it was at, before it hears what it missed."""
    ran, may_end = list[int](), asyncio.Event()

    async def work() -> None:
        ran.append(rj.current_job().id)
        await may_end.wait()

    definition = job_type(work)
    source = MemorySource([a_job(id=id_, definition=definition, node=uuid4()) for id_ in range(1, 5)])
    async with runs(rj.pull(source, max_demand=4).pipe(rj.execute(concurrency=1), rj.ack())) as observed:
        await asyncio.sleep(1)
        assert ran == [1]
        observed.running.tenure.until = 0.0
        may_end.set()
        for _ in range(1_000):  # steps, in which no time passes: what is released is asked for again at once
            if len(source.settled) >= 4:
                break
            await asyncio.sleep(0)
        assert ran == [1]
        assert [type(one.outcome) for one in source.settled[:4]] == [rj.Complete, rj.Release, rj.Release, rj.Release]
        assert {one.outcome.reason for one in source.settled[1:4]} == {"its node was cut off"}
        observed.running.tenure.until = float("inf")
        await asyncio.sleep(1)
        assert sorted(ran) == [1, 2, 3, 4]
