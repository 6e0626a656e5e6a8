"""A branch, as it is declared."""

from __future__ import annotations

import pytest
from reactivex import operators as ops

import rxjobs as rj
from rxjobs.operators.branch import DEFAULT_DEMAND
from rxjobs.testing import marbles


def test_it_is_an_operator_itself():
    marbles(rj.branch(rj.filter(lambda job: job.args["letter"] == "a"), rj.complete()), "-a-b|", "-A-B|", values={"B": rj.Cancel})


@pytest.mark.parametrize(
    ("branch", "expected"),
    [
        (rj.branch(rj.execute(concurrency=7)), 7),
        (rj.branch(rj.execute(concurrency=7), max_demand=30), 30),
        (rj.branch(rj.filter(bool), rj.enrich(print, concurrency=3), rj.execute(concurrency=9)), 3),
        (rj.branch(ops.do_action(print), rj.execute_batch(print, concurrency=4)), 4),
        (rj.branch(rj.buffer(12), rj.execute_batch(print)), 12),
        (rj.branch(rj.complete()), DEFAULT_DEMAND),
        (rj.branch(rj.balance(rj.execute(concurrency=2), rj.execute(concurrency=3))), 5),
        (rj.branch(rj.broadcast(rj.execute(concurrency=2), rj.execute(concurrency=3))), 2),
        (rj.branch(rj.partition(4, by="args.n", branch=rj.execute(concurrency=3))), 12),
    ],
)
def test_without_max_demand_it_takes_the_concurrency_of_its_first_stage_that_has_one(branch, expected):
    assert branch.concurrency == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rj.branch(), r"rj.branch: give at least one operator, such as rj.branch\(rj.execute\(concurrency=5\)\)"),
        (lambda: rj.branch(5), r"rj.branch: a branch is made of operators such as rj.execute\(\), not 5"),
        (lambda: rj.branch(rj.execute(), max_demand=0), "rj.branch: max_demand is a whole number of at least 1, not 0"),
        (lambda: rj.balance(), "rj.balance: give at least one branch"),
        (lambda: rj.broadcast(), "rj.broadcast: give at least one branch"),
        (lambda: rj.balance(None), r"rj.balance: a branch is an operator such as rj.execute\(\), or rj.branch\(...\), not None"),
        (lambda: rj.partition(0, by="queue", branch=rj.execute()), "rj.partition: n is a whole number of at least 1, not 0"),
        (lambda: rj.partition(2, by=5, branch=rj.execute()), "rj.partition: by is a function of a job, or a name such as .*not 5"),
        (lambda: rj.partition(2, by="nonsense", branch=rj.execute()), "rj.partition: by names what a job carries, .*'nonsense'"),
        (lambda: rj.partition(2, by="queue", branch=[]), "rj.partition: a branch is an operator"),
        (
            lambda: rj.partition(2, by="queue", branch=rj.execute(), strict="yes"),
            "rj.partition: strict is True or False, not 'yes'",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(rj.InvalidOption, match=message):
        make()
