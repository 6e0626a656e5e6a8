from __future__ import annotations

import asyncio

import pytest

import rxjobs as rj
from rxjobs.testing import a_job, marbles


def is_first(job: rj.Job) -> bool:
    return job.args["letter"] == "a"


def test_jobs_that_are_not_wanted_are_settled_with_otherwise():
    marbles(rj.filter(is_first, otherwise=rj.Discard("no")), "-a-b|", "-a-B|", values={"B": rj.Discard("no")})


def test_without_otherwise_they_are_cancelled_with_the_name_of_the_stage():
    marbles(rj.filter(is_first, name="first"), "-b|", "-B|", values={"B": rj.Cancel("the stage 'first' did not let it pass")})


def test_otherwise_follows_the_retry_rule():
    last = a_job(attempt=20, args={"letter": "b"})
    marbles(rj.filter(is_first, otherwise=rj.Retry()), "-b|", "-B|", values={"b": last, "B": rj.Discard})


def test_a_predicate_that_raises_ends_that_job_alone():
    marbles(rj.filter(lambda job: 1 / (job.args["letter"] == "a")), "-ab|", "-aB|", values={"B": rj.Retry})


def test_what_is_finished_passes_and_lists_are_taken_one_by_one():
    marbles(rj.filter(is_first), "-[ab]-C-|", "-(aB)-C-|", values={"B": rj.Cancel})


def test_an_error_and_an_end_pass():
    marbles(rj.filter(is_first), "-a#", "-a#")


@pytest.mark.parametrize(
    ("predicate", "otherwise", "message"),
    [
        (None, None, "predicate is a function of a job, not None"),
        (asyncio.sleep, None, "predicate is a plain function; use rj.enrich"),
        (is_first, "no", "otherwise is an outcome such as"),
        (is_first, rj.Cancel, "otherwise is an outcome such as"),
    ],
)
def test_what_cannot_be_is_refused(predicate, otherwise, message):
    with pytest.raises(rj.InvalidOption, match=message):
        rj.filter(predicate, otherwise)
