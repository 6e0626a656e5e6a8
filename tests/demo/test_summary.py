"""The checks that the demo makes of itself, each of which has to find what it looks for."""

from __future__ import annotations

from rxjobs.demo.summary import AWAITED, Percentiles, find_lost, find_misled, percentiles
from rxjobs.demo.witness import Transition
from rxjobs.job import State

COMPLETED, EXECUTING, DISCARDED = [State.COMPLETED], [State.EXECUTING], [State.DISCARDED]
STATES = {"index_file": {"completed": 2, "cancelled": 1}, **{name: {state.value: 3} for name, state in AWAITED.items()}}
MOVES = [
    Transition("forecast", "closed", "open"),
    Transition("forecast", "open", "half-open"),
    Transition("forecast", "half-open", "closed"),
]


def test_percentiles_are_values_that_occurred():
    assert percentiles([float(n) for n in range(100, 0, -1)]) == Percentiles(50, 95, 99, 100)
    assert percentiles([3.0]) == Percentiles(3, 3, 3, 3)


def test_jobs_that_ended_once_as_their_row_says_are_fine():
    assert not list(find_lost([1, 2], {1: COMPLETED, 2: DISCARDED}, {1: COMPLETED, 2: DISCARDED}))


def test_a_job_without_a_row_is_lost():
    assert "1 jobs have no row: 2" in list(find_lost([1, 2], {1: COMPLETED}, {1: COMPLETED}))


def test_a_job_that_still_runs_has_not_ended():
    assert "1 jobs did not end: 2" in list(find_lost([1, 2], {1: COMPLETED, 2: EXECUTING}, {1: COMPLETED}))


def test_a_job_that_came_out_twice_or_otherwise_is_told():
    twice = find_lost([1], {1: COMPLETED}, {1: [State.COMPLETED, State.COMPLETED]})
    otherwise = find_lost([1], {1: COMPLETED}, {1: DISCARDED})
    assert list(twice) == list(otherwise) == ["1 jobs did not end exactly once, as their row says: 1"]


def test_all_that_went_as_meant_is_fine():
    assert not list(find_misled(STATES, 2, MOVES))


def test_a_file_that_was_not_written_is_told():
    assert list(find_misled(STATES, 1, MOVES)) == ["1 files were written, and 2 of their jobs completed"]


def test_weather_that_ended_otherwise_is_told():
    (told,) = find_misled({**STATES, "flaky_reading": {"completed": 2, "discarded": 1}}, 2, MOVES)
    assert told.startswith("all jobs of flaky_reading should have ended completed")


def test_a_breaker_that_stayed_open_or_shut_is_told():
    for moves in (MOVES[:2], []):
        (told,) = find_misled(STATES, 2, moves)
        assert told.startswith("the breaker of forecast should have opened and closed again")
