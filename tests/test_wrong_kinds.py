"""What is of another kind than it is to be is refused where it is given, and the error says what it is to be."""

from __future__ import annotations

import pytest

import rxjobs as rj

APP = rj.App("postgresql://nowhere/nothing")


class Thing:
    def __repr__(self) -> str:
        return "<Thing>"


def nothing(*_: object) -> None: ...


def a_job_type(**options):
    return rj.App("postgresql://nowhere/nothing").job(name="work", **options)(nothing)


STAGES = {
    "execute": rj.execute,
    "execute_batch": lambda **how: rj.execute_batch(nothing, **how),
    "enrich": lambda **how: rj.enrich(nothing, **how),
    "map": lambda **how: rj.map(nothing, **how),
    "tap": lambda **how: rj.tap(nothing, **how),
    "filter": lambda **how: rj.filter(nothing, **how),
    "buffer": lambda **how: rj.buffer(2, **how),
    "rate_limit": lambda **how: rj.rate_limit(1, per=1, **how),
    "complete": rj.complete,
    "ack": rj.ack,
    "balance": lambda **how: rj.balance(rj.execute(), **how),
    "broadcast": lambda **how: rj.broadcast(rj.execute(), **how),
    "partition": lambda **how: rj.partition(2, by="args.n", branch=rj.execute(), **how),
    "branch": lambda **how: rj.branch(rj.execute(), **how),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", [5, b"mail", ["mail"], Thing()], ids=repr)
def test_the_name_of_a_stage_is_text(stage, name):
    kind = "branch" if stage == "branch" else "stage"
    with pytest.raises(rj.InvalidOption, match=f"^the name of a {kind} is text, such as name='mail', not"):
        STAGES[stage](name=name)
    STAGES[stage](name="mail")


@pytest.mark.parametrize("stage", ["execute_batch", "enrich", "map", "tap"])
@pytest.mark.parametrize("timeout", ["soon", True, float("nan"), 0, Thing()], ids=repr)
def test_the_timeout_of_a_stage_is_a_number_of_seconds(stage, timeout):
    with pytest.raises(rj.InvalidOption, match=f"^rj.{stage}: timeout is a number of seconds above 0, or None, not"):
        STAGES[stage](timeout=timeout)


@pytest.mark.parametrize("stage", ["execute", "enrich", "map", "tap"])
@pytest.mark.parametrize("on", ["threads", 8, Thing(), rj.in_threads], ids=["text", "number", "thing", "function"])
def test_what_a_stage_runs_on_is_an_executor(stage, on):
    with pytest.raises(rj.InvalidOption, match=f"^rj.{stage}: on is where code runs: rj.in_threads"):
        STAGES[stage](on=on)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rj.App(node=5), r"^node=5 in App\(\.\.\.\) is no text"),
        (lambda: rj.App(schema=Thing()), r"^schema=<Thing> in App\(\.\.\.\) is no text"),
        (lambda: rj.App(max_restarts=1.5), r"^max_restarts=1.5 in App\(\.\.\.\) is no whole number"),
        (lambda: rj.App(max_memory=float("inf")), "^max_memory=inf in App"),
        (lambda: rj.App(callables=5), "^callables are patterns of dotted names, such as 'shop.mail.*', not 5"),
        (lambda: a_job_type(timeout=True), "^work: timeout is a number of seconds above 0, or None, not True"),
        (lambda: rj.Breaker(exclude=["KeyError"]), "^Breaker: exclude is a tuple of exceptions' classes"),
        (lambda: rj.Breaker(exclude=("KeyError",)), "^Breaker: exclude is a tuple of exceptions' classes"),
        (lambda: rj.Breaker(exclude=KeyError), "^Breaker: exclude is a tuple of exceptions' classes"),
        (lambda: rj.Unique(by=None), "^Unique: by is text or a tuple of it, not None"),
        (lambda: rj.Unique(states=5), "^Unique: states is text or a tuple of it, not 5"),
        (lambda: rj.Unique(replace=Thing()), "^Unique: replace is text or a tuple of it, not <Thing>"),
        (lambda: rj.enqueue(Thing()), "^rj.enqueue takes an app, which inserts jobs, not <Thing>"),
        (lambda: APP.source(["mail"]), "^a queue's name is letters"),
        (lambda: APP.pipeline(APP.source("mail"), 5), "^the name of a pipeline is text, such as name='mail', not 5"),
    ],
)
def test_what_is_of_another_kind_is_refused_in_words(call, words):
    with pytest.raises(rj.InvalidOption, match=words):
        call()


def test_several_classes_may_come_in_any_collection():
    assert rj.Breaker(exclude=[KeyError]) == rj.Breaker(exclude={KeyError}) == rj.Breaker(exclude=(KeyError,))
