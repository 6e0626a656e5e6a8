"""Calls that are counted for a while."""

from __future__ import annotations

import pytest

from rxjobs.middleware.window import Window


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_a_call_counts_for_half_the_window_at_least_and_for_all_of_it_at_most(clock):
    for late in range(0, 300, 7):
        window = Window(100, clock)
        window.add(is_good=True)  # its halves begin somewhere before
        clock.now += late
        window.add(is_good=False)
        clock.now += 49
        assert window.counts[1] == 1
        clock.now += 52
        assert window.counts == (0, 0)


def test_what_is_taken_counts_no_more_until_it_is_put_back(clock):
    window = Window(100, clock)
    for is_good in (True, False, True):
        window.add(is_good=is_good)
    assert window.take() == (3, 1)
    assert window.counts == (0, 0)
    window.add(is_good=False)
    window.put_back(3, 1)
    assert window.counts == (4, 2)
