"""The marble diagrams themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from reactivex import operators as ops

import rxjobs as rj
from rxjobs.testing import a_job, marbles


def as_it_is(source: Any) -> Any:
    return source


def test_what_goes_in_comes_out():
    for line in ("-a-b|", "a", "|", "#", "^", "---", "(ab)---|", "-[ab]--[cd]--#", "A-b-C|", "-a-(bC|)"):
        marbles(as_it_is, line, line)


def test_spaces_take_no_time():
    marbles(as_it_is, "- a - b |", "-a-b|")


def test_an_operator_on_time_moves_them():
    marbles(ops.delay(1), "-a-b|", "--a-b|")
    marbles(ops.delay(2), "-a-b|", "--a-b|", unit=2)


@pytest.mark.parametrize(
    ("expect", "came"),
    [
        ("-a--|", "-a-b|"),
        ("-a-b-|", "-a-b|"),
        ("-a-b", "-a-b|"),
        ("-b-a|", "-a-b|"),
        ("-a-B|", "-a-b|"),
        ("^", "-a-b|"),
        ("-a-b#", "-a-b|"),
    ],
)
def test_what_differs_is_shown_with_both_lines(expect, came):
    with pytest.raises(AssertionError) as caught:
        marbles(as_it_is, "-a-b|", expect)
    text = str(caught.value)
    assert f"jobs     -a-b|\n    expected {expect}\n    came     {came}" in text


def test_what_comes_between_two_units_is_said():
    with pytest.raises(AssertionError, match=r"a at 1.5"):
        marbles(ops.delay(0.5), "-a|", "-a|")


def test_how_a_job_must_have_ended_may_be_said():
    to_cancel = rj.filter(lambda job: False, otherwise=rj.Cancel("no"))
    marbles(to_cancel, "a|", "A|")
    marbles(to_cancel, "a|", "A|", values={"A": rj.Cancel})
    marbles(to_cancel, "a|", "A|", values={"A": rj.Cancel("no")})
    with pytest.raises(AssertionError, match=r"A ended with Cancel\(reason='no'\), not with Discard"):
        marbles(to_cancel, "a|", "A|", values={"A": rj.Discard})
    with pytest.raises(AssertionError, match="not with Cancel"):
        marbles(to_cancel, "a|", "A|", values={"A": rj.Cancel("other")})


def test_a_letter_may_stand_for_a_job_of_ones_own():
    job = a_job(args={"n": 7})
    assert marbles(as_it_is, "a|", "a|", values={"a": job}) == [job]


def test_what_is_no_job_and_what_was_an_error_is_shown():
    with pytest.raises(AssertionError, match=r"\? is no job: 5"):
        marbles(ops.map(lambda _: 5), "a|", "a|")
    with pytest.raises(AssertionError, match="# was ZeroDivisionError"):
        marbles(ops.map(lambda _: 1 / 0), "a|", "a|")


def test_an_error_that_is_expected_is_none():
    marbles(ops.map(lambda _: 1 / 0), "-a|", "-#")


@pytest.mark.parametrize("line", ["a5", "-(ab", "[a", "a?", ")"])
def test_a_line_that_means_nothing_is_refused(line):
    with pytest.raises(ValueError, match=r"of the line"):
        marbles(as_it_is, line, "^")


def test_coroutines_sleep_on_virtual_time():
    async def hour(job: rj.Job) -> None:
        await asyncio.sleep(3600)

    marbles(rj.enrich(hour), "a-|", "--(a|)", unit=1800)
