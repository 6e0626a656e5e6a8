"""A job as a value."""

from __future__ import annotations

import asyncio

import pytest

import rxjobs as rj
from rxjobs.testing import a_job, job_type


def test_a_job_is_frozen():
    with pytest.raises(AttributeError):
        a_job().queue = "other"


def test_jobs_are_hashed_by_their_id():
    job = a_job(args={"not": ["hashable"]})
    assert hash(job) == hash(job.assign({"name": "Ada"}))
    assert job in {job}


def test_assigns_are_added_to_and_the_job_before_stays_as_it_was():
    job = a_job(assigns={"a": 1, "b": 1})
    more = job.assign({"b": 2, "c": 3})
    assert more.assigns == {"a": 1, "b": 2, "c": 3}
    assert job.assigns == {"a": 1, "b": 1}


def test_outside_of_a_pipeline_a_job_has_no_deadline_and_is_not_cancelled():
    job = a_job()
    assert job.deadline is None
    assert job.cancelled is False


def test_outside_of_a_job_current_job_says_so():
    with pytest.raises(rj.NotOpen, match=r"current_job\(\) was called outside of a job"):
        rj.current_job()


async def test_inside_of_a_job_current_job_is_that_job():
    async def who() -> int:
        await asyncio.sleep(0)
        return rj.current_job().id

    definition = job_type(who)
    jobs = [a_job(definition=definition) for _ in range(20)]
    finished = await asyncio.gather(*(definition.perform(job, None) for job in jobs))
    assert [one.outcome.result for one in finished] == [job.id for job in jobs]
    with pytest.raises(rj.NotOpen):
        rj.current_job()


def test_states_are_text():
    assert rj.State.AVAILABLE == "available"
    assert {str(state) for state in rj.State} == {
        "scheduled", "available", "executing", "completed", "retryable", "discarded", "cancelled", "held",
    }  # fmt: skip
