from __future__ import annotations

import pytest

import rxjobs as rj
from rxjobs.testing import marbles


def test_a_list_goes_on_when_it_is_full():
    marbles(rj.buffer(2, None), "-a--b---|", "----[ab]---|")


def test_a_list_that_is_not_full_goes_on_some_time_after_its_first_job_came():
    marbles(rj.buffer(3, 5), "-a-b---------|", "------[ab]------|")


def test_the_time_begins_anew_with_each_list():
    marbles(rj.buffer(2, 4), "ab---c------|", "-[ab]-------[c]--|")


def test_what_is_left_goes_on_at_the_end():
    marbles(rj.buffer(3, 10), "-a-b|", "----([ab]|)")


def test_without_a_timespan_a_list_waits_until_it_is_full():
    marbles(rj.buffer(3, None), "-a-b-", "^")


def test_what_is_finished_passes_at_once():
    marbles(rj.buffer(3, None), "-aBc|", "--B-([ac]|)")


def test_lists_are_gathered_anew():
    marbles(rj.buffer(3, None), "[abcd]--|", "[abc]--([d]|)")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count is a whole number of at least 1, not 0"),
        ({"count": 2.0}, "not 2.0"),
        ({"count": 2, "timespan": 0}, "timespan is a number of seconds above 0, or None, not 0"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(rj.InvalidOption, match=message):
        rj.buffer(**options)
