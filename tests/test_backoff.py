"""Oban's formula."""

from __future__ import annotations

import pytest

from rxjobs.backoff import default_backoff


@pytest.mark.parametrize("attempt", range(1, 21))
def test_it_is_15_seconds_and_a_power_of_two_with_up_to_a_tenth_of_jitter(attempt):
    least = 15 + 2**attempt
    assert all(least <= default_backoff(attempt, 20) <= 1.1 * least for _ in range(100))


@pytest.mark.parametrize(("attempt", "scaled"), [(1, 0), (5, 1), (50, 10), (97, 19), (100, 20)])
def test_of_more_than_20_attempts_each_is_scaled_to_20(attempt, scaled):
    least = 15 + 2**scaled
    assert all(least <= default_backoff(attempt, 100) <= 1.1 * least for _ in range(100))


def test_of_fewer_than_20_attempts_none_is_scaled():
    assert 15 + 2**3 <= default_backoff(3, 3) <= 1.1 * (15 + 2**3)


def test_no_two_waits_are_alike():
    assert len({default_backoff(5, 20) for _ in range(100)}) > 90
