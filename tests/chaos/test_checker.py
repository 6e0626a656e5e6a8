"""The checker finds what is wrong: each rule is shown a run that breaks it, and one that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.checker import Row, Run, percentile, recovery, throughput, violations
from tests.chaos.ledger import Answer, Interval, Line, intervals

SECOND = 10**9
GOOD = Row(id=1, key="a", type="work", state="completed", attempt=1, max_attempts=3)


def ran(id_=1, attempt=1, pid=10, since=0, to=SECOND, how="end"):
    return Interval(id_, attempt, pid, since, to, how, "default")


FINE = Run(rows=[GOOD], attempts=[ran()], answers={"a": Answer.OK})
AGAIN = [ran(how="died"), ran(attempt=2, pid=11, since=4 * SECOND, to=5 * SECOND)]


@pytest.mark.parametrize(
    "run",
    [
        FINE,
        replace(FINE, rows=[*FINE.rows, replace(GOOD, id=2, key="b")], attempts=[ran(), ran(id_=2)], answers={"b": Answer.INFO}),
        replace(FINE, answers={"a": Answer.OK, "b": Answer.INFO, "c": Answer.FAIL}),
        Run(rows=[replace(GOOD, attempt=2, lost=frozenset({1}))], attempts=AGAIN),
        # given back when it was asked to stop, so that its number comes again
        Run(rows=[GOOD], attempts=[ran(how="stop"), ran(since=2 * SECOND, to=3 * SECOND)]),
        Run(rows=[replace(GOOD, state="executing", is_leased=True)], attempts=[ran(to=None)]),
        Run(rows=[replace(GOOD, state="available", attempt=0, type="unknown")], attempts=[], may_wait=frozenset({"unknown"})),
        Run(rows=[GOOD], attempts=[ran()], use={10: (10**6, 5, 3)}),
        # it was stopped for longer than its lease meanwhile
        Run(
            rows=[replace(GOOD, attempt=2, lost=frozenset({1}))],
            attempts=[ran(to=9 * SECOND), ran(attempt=2, pid=11, since=4 * SECOND, to=5 * SECOND)],
            absences={10: [(SECOND // 2, 8 * SECOND)]},
        ),
        # its worker gave it up before it had heard from the child that it had ended
        Run(rows=[GOOD], attempts=[ran(), ran(since=2 * SECOND, to=3 * SECOND)], given_up=[SECOND + 25 * 10**6]),
    ],
)
def test_what_is_as_it_should_be_is_no_violation(run):
    assert violations(run) == []


@pytest.mark.parametrize(
    ("words", "run"),
    [
        ("a was acknowledged, and is there 0 times", replace(FINE, rows=[])),
        ("a was acknowledged, and is there 2 times", replace(FINE, rows=[GOOD, replace(GOOD, id=2)], attempts=[ran(), ran(id_=2)])),
        ("enqueued once, and is there 2 times", Run(
            rows=[GOOD, replace(GOOD, id=2)], attempts=[ran(), ran(id_=2)], answers={"a": Answer.INFO},
        )),
        ("a was refused, and is there", replace(FINE, answers={"a": Answer.FAIL})),
        ("ran to its end 2 times", replace(FINE, attempts=[ran(), ran(since=2 * SECOND, to=3 * SECOND)])),
        ("ran to its end 2 times", replace(
            FINE, attempts=[ran(), ran(since=2 * SECOND, to=3 * SECOND)], given_up=[5 * SECOND],
        )),
        ("attempt 2 of job 1 began in 11 while 1 ran in 10 (work, end): 4.000 s into it, 5.000 s before its end", Run(
            rows=[replace(GOOD, attempt=2, lost=frozenset({1}))],
            attempts=[ran(to=9 * SECOND), ran(attempt=2, pid=11, since=4 * SECOND, to=5 * SECOND)],
        )),
        ("while 1 ran in 10", Run(
            rows=[replace(GOOD, attempt=2)], attempts=[ran(to=None), ran(attempt=2, pid=11, since=4 * SECOND, to=5 * SECOND)],
        )),
        ("no living node has it", Run(rows=[replace(GOOD, state="executing")], attempts=[ran(to=None)])),
        ("still waits as available", Run(rows=[replace(GOOD, state="available")], attempts=[ran()])),
        ("attempt 4 of 3", Run(rows=[replace(GOOD, attempt=4, lost=frozenset({1, 2, 3}))], attempts=[ran(attempt=4)])),
        ("nobody knows of [1]", Run(rows=[replace(GOOD, attempt=2)], attempts=[ran(attempt=2)])),
        ("more than", replace(FINE, use={10: (10**10, 5, 3)})),
        ("more than", replace(FINE, use={10: (10**6, 500, 3)})),
        ("more than", replace(FINE, use={10: (10**6, 5, 300)})),
        ("was to change that had ended", replace(FINE, changed_when_terminal=1)),
    ],
)  # fmt: skip
def test_what_is_not_as_it_should_be_is_said(words, run):
    found = violations(run)
    assert len(found) == 1, found
    assert words in found[0]


def test_what_a_process_was_at_when_it_died_ended_then():
    lines = [Line("start", 1, 1, 10, 5, "default"), Line("start", 2, 1, 10, 6, "default"), Line("end", 2, 1, 10, 7, "default")]
    assert intervals(lines, {10: 9}) == [ran(since=5, to=9, how="died"), ran(id_=2, since=6, to=7)]


def test_recovery_is_from_the_death_to_the_next_attempt():
    assert recovery(AGAIN, {10: SECOND}) == [3.0]
    assert recovery(AGAIN, {}) == []


def test_throughput_is_counted_in_a_time_and_a_queue():
    assert throughput([ran(since=n * SECOND) for n in range(10)], "default", 2 * SECOND, 4 * SECOND) == 1.0
    assert throughput([ran(since=n * SECOND) for n in range(10)], "healthy", 2 * SECOND, 4 * SECOND) == 0.0


def test_a_percentile_is_one_of_the_values():
    assert percentile([1.0, 2.0, 3.0], 0.99) == 3.0
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert percentile([], 0.5) == 0.0
