"""A source in memory."""

from __future__ import annotations

import asyncio

import pytest

import rxjobs as rj
from rxjobs.outcome import Finished
from rxjobs.testing import MemorySource, a_job, conformance
from tests.virtual import on_virtual_time


async def test_it_keeps_the_laws():
    await conformance.source(lambda count: MemorySource(a_job() for _ in range(count)))


async def test_it_keeps_what_it_was_asked_and_told():
    jobs = [a_job() for _ in range(5)]
    source = MemorySource(jobs)
    fetched = await source.fetch(3)
    assert [job.id for job in fetched] == [job.id for job in jobs[:3]]
    assert [(job.state, job.attempt) for job in fetched] == [("executing", 1)] * 3
    finished = Finished(fetched[0], rj.Complete())
    await source.settle([finished])
    assert (source.asked, source.settled) == ([3], [finished])


@pytest.mark.parametrize(
    ("outcome", "delay", "attempt"),
    [(rj.Retry(5), 5, 2), (rj.Snooze(7), 7, 1), (rj.Release(2), 2, 1), (rj.Release(), 0, 1), (rj.Retry(), 0, 2)],
    ids=repr,
)
@on_virtual_time
async def test_what_is_not_done_comes_back_after_its_delay_as_it_was_pushed(outcome, delay, attempt):
    source, woken = MemorySource([a_job(args={"n": 1})]), list[float]()
    loop = asyncio.get_running_loop()
    source.wakes.subscribe(lambda _: woken.append(loop.time()))
    (job,) = await source.fetch(1)
    await source.settle([Finished(job.assign({"found": "it"}), outcome)])
    await asyncio.sleep(10)
    assert woken == [pytest.approx(delay)]
    (again,) = await source.fetch(1)
    assert (again.id, again.attempt, again.assigns, again.args) == (job.id, attempt, {}, {"n": 1})


@on_virtual_time
async def test_once_closed_it_ends_when_the_last_job_has():
    source, ended = MemorySource([a_job(), a_job()]), list[bool]()
    source.wakes.subscribe(on_completed=lambda: ended.append(True))
    first, second = await source.fetch(2)
    source.close()
    await source.settle([Finished(first, rj.Complete()), Finished(second, rj.Snooze(5))])
    await asyncio.sleep(10)
    assert ended == []
    (again,) = await source.fetch(1)
    await source.settle([Finished(again, rj.Discard())])
    assert ended == [True]


def test_closed_without_jobs_it_has_ended():
    source, ended = MemorySource(), list[bool]()
    source.close()
    source.wakes.subscribe(on_completed=lambda: ended.append(True))
    assert ended == [True]
