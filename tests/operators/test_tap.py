"""A side effect for each job."""

from __future__ import annotations

import asyncio
import threading
from typing import NoReturn

import pytest

import rxjobs as rj
from rxjobs.testing import a_job, marbles


def test_it_is_called_with_each_job_which_passes_unchanged():
    seen, job = list[rj.Job](), a_job()
    (came, _) = marbles(rj.tap(seen.append), "-a-b|", "-a-b|", values={"a": job})
    assert came == job
    assert len(seen) == 2


def test_a_job_passes_once_its_call_has_returned():
    async def slow(job: rj.Job) -> None:
        await asyncio.sleep(2)

    marbles(rj.tap(slow, concurrency=1), "ab----|", "--a-b-|")


def test_a_plain_function_runs_in_a_thread():
    threads = list[int]()
    marbles(rj.tap(lambda job: threads.append(threading.get_ident())), "a|", "a|")
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("given", [None, 5, {"n": 1}, a_job()], ids=["None", "5", "a mapping", "a job"])
def test_what_it_gives_is_ignored(given):
    (job,) = marbles(rj.tap(lambda job: given), "a|", "a|")
    assert job.assigns == {}


def test_an_outcome_settles_the_job():
    marbles(rj.tap(lambda job: rj.Cancel("no")), "a|", "A|", values={"A": rj.Cancel("no")})


def test_what_raises_is_a_failed_attempt_of_that_job_alone():
    def odd(job: rj.Job) -> None:
        if job.args:
            raise ValueError("odd")

    values = {"a": a_job(args={"n": 1}), "b": a_job(), "c": a_job(args={"n": 1}, attempt=1, max_attempts=1)}
    (a, _, c) = marbles(rj.tap(odd), "-a-b-c|", "-A-b-C|", values={**values, "A": rj.Retry, "C": rj.Discard})
    assert a.outcome.failure.type == c.outcome.failure.type == "ValueError"


def test_one_that_takes_too_long_is_a_failed_attempt():
    async def slow(job: rj.Job) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError

    (finished,) = marbles(rj.tap(slow, timeout=1), "a-|", "-A|", values={"A": rj.Retry})
    assert finished.outcome.failure.type == "TimeoutError"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"function": 5}, "rj.tap: function is a function of a job, not 5"),
        ({"concurrency": 0}, "rj.tap: concurrency is a whole number of at least 1, not 0"),
        ({"timeout": 0}, "rj.tap: timeout is a number of seconds above 0, or None, not 0"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(rj.InvalidOption, match=message):
        rj.tap(**{"function": print, **options})
