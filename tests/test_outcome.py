"""Outcomes as values."""

from __future__ import annotations

import math
import pickle

import pytest

import rxjobs as rj

ALL = [
    rj.Complete({"n": 1}),
    rj.Retry(5, "later"),
    rj.Snooze(60, "soon"),
    rj.Cancel("no"),
    rj.Discard("never"),
    rj.Release(1.5, "you"),
]


@pytest.mark.parametrize("outcome", ALL, ids=lambda outcome: type(outcome).__name__)
def test_an_outcome_can_be_raised_compared_hashed_and_pickled(outcome):
    with pytest.raises(type(outcome)) as caught:
        raise outcome
    assert caught.value == outcome
    assert {outcome: 1}[outcome] == 1
    again = pickle.loads(pickle.dumps(outcome))  # noqa: S301 - our own
    assert again == outcome
    assert type(again) is type(outcome)


def test_outcomes_of_different_kinds_are_never_equal():
    assert rj.Cancel("why") != rj.Discard("why")
    assert rj.Snooze(5) != rj.Snooze(6)


@pytest.mark.parametrize("make", [rj.Retry, rj.Snooze, rj.Release])
@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf, 10**9, "5", True, [5]])
def test_seconds_that_are_none_are_refused(make, seconds):
    with pytest.raises(rj.InvalidOption, match=rf"{make.__name__} takes a number of seconds from 0 to a billion, not "):
        make(seconds)


@pytest.mark.parametrize("make", [rj.Retry, rj.Snooze, rj.Release])
@pytest.mark.parametrize("seconds", [0, 0.5, 10**9 - 1])
def test_seconds_from_none_to_a_billion_are_taken(make, seconds):
    make(seconds)


def test_a_finished_job_is_frozen():
    finished = rj.Finished(rj.Job(id=1, type="t"), rj.Complete())
    with pytest.raises(AttributeError):
        finished.outcome = rj.Cancel()
