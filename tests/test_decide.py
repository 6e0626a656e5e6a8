"""The retry rule."""

from __future__ import annotations

import gc
import math
import weakref
from typing import Any

import pytest

import rxjobs as rj
from rxjobs.decide import raised, resolve, returned
from rxjobs.testing import a_job, job_type


def do_nothing() -> None:
    """A job."""


def job(attempt: int = 1, max_attempts: int = 20, **options: Any) -> rj.Job:
    return a_job(attempt=attempt, max_attempts=max_attempts, definition=job_type(do_nothing, **options))


def test_what_a_job_returns_completes_it():
    assert returned(job(), None) == rj.Complete()
    assert returned(job(), {"rows": 3}) == rj.Complete({"rows": 3})
    assert returned(job(), False) == rj.Complete(False)


@pytest.mark.parametrize(
    "outcome", [rj.Complete(1), rj.Snooze(60), rj.Cancel("why"), rj.Discard("why"), rj.Retry(delay=5), rj.Release(2)]
)
def test_an_outcome_that_is_returned_or_raised_is_how_it_ended(outcome):
    assert returned(job(), outcome) == outcome
    assert raised(job(), outcome) == outcome


def test_what_a_job_raises_is_retried_with_backoff():
    outcome = raised(job(attempt=3), ValueError("no"))
    assert isinstance(outcome, rj.Retry)
    assert 23 <= outcome.delay <= 23 * 1.1
    assert (outcome.failure.type, outcome.failure.message, outcome.reason) == ("ValueError", "no", "no")


@pytest.mark.parametrize("attempt", [20, 21])
@pytest.mark.parametrize("how", [raised, resolve], ids=["raised", "retry"])
def test_once_attempts_are_used_up_it_is_discarded(attempt, how):
    error = ValueError("no") if how is raised else rj.Retry(delay=5, reason="no")
    outcome = how(job(attempt), error)
    assert isinstance(outcome, rj.Discard)
    assert outcome.reason == "no"


def test_a_retry_that_was_asked_for_keeps_its_delay_also_of_zero():
    assert resolve(job(), rj.Retry(delay=0)).delay == 0
    assert 17 <= resolve(job(), rj.Retry()).delay <= 17 * 1.1


def test_a_backoff_of_its_own_is_given_attempt_and_error():
    given = list[Any]()
    error = ValueError("no")
    outcome = raised(job(attempt=7, backoff=lambda *what: given.append(what) or 3), error)
    assert outcome.delay == 3
    assert given == [(7, error)]


def _raise(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    "backoff",
    [
        lambda *_: _raise(ValueError("no")),
        lambda *_: _raise(SystemExit(1)),
        lambda *_: math.nan,
        lambda *_: math.inf,
        lambda *_: -1,
        lambda *_: None,
        lambda *_: "soon",
        lambda *_: 10**9,
        lambda *_: 10**400,
        lambda: 5,
    ],
    ids=["raises", "exits", "nan", "infinite", "negative", "none", "text", "too long", "too large a number", "takes nothing"],
)
def test_a_backoff_that_gives_no_seconds_is_replaced_by_the_default(backoff, caplog):
    outcome = raised(job(backoff=backoff), ValueError("no"))
    assert 17 <= outcome.delay <= 17 * 1.1
    assert "the default is used" in caplog.text


def test_an_outcome_that_is_raised_again_and_again_gathers_no_frames():
    class Load:
        """What lies in a job's frame."""

    again = rj.Retry(delay=1)
    loads = list[weakref.ref[Load]]()

    def work() -> None:
        load = Load()
        loads.append(weakref.ref(load))
        raise again

    def end_of(function: Any) -> None:
        try:
            function()
        except rj.Outcome as outcome:
            raised(job(), outcome)
            raise rj.Retry from None

    for _ in range(3):
        with pytest.raises(rj.Retry):
            end_of(work)
    gc.collect()
    assert [load() for load in loads] == [None] * 3
