"""Job types: what they are given, and what is refused."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import Any

import pytest

import rxjobs as rj
from rxjobs.definition import Options, check_queue


@pytest.fixture
def app() -> rj.App:
    return rj.App("postgresql://nowhere/nothing")


def test_the_function_stays_callable_as_before(app):
    @app.job
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    @app.job(queue="mail")
    async def promise(a: int) -> int:
        return a

    assert add(2, b=3) == 5
    assert asyncio.run(promise(7)) == 7
    assert (add.__name__, add.__doc__) == ("add", "Add.")


def test_by_default_it_is_named_by_its_module_and_name(app):
    @app.job
    def work() -> None: ...

    assert work.name.endswith("test_definition.test_by_default_it_is_named_by_its_module_and_name.work")
    assert app.definition(work.name) is work
    assert repr(work) == f"<job type {work.name}>"


def test_new_makes_a_job_with_the_options_of_its_type(app):
    @app.job(name="mail", queue="out", priority=3, max_attempts=5, tags=["a"], meta={"team": "x"})
    def work(n: int) -> None: ...

    new = work.new(n=1)
    assert (new.type, new.queue, new.priority, new.max_attempts, new.tags, new.meta) == ("mail", "out", 3, 5, ("a",), {"team": "x"})
    assert new.payload == '{"n":1}'


def test_options_change_one_job_and_leave_the_type_alone(app):
    @app.job(name="mail", meta={"team": "x", "cost": 1})
    def work(n: int) -> None: ...

    at = datetime(2030, 1, 1, tzinfo=UTC)
    new = work.options(priority=9, queue="slow", max_attempts=1, tags=["b"], meta={"cost": 2}, scheduled_at=at).new(1)
    assert (new.priority, new.queue, new.max_attempts, new.tags, new.scheduled_at) == (9, "slow", 1, ("b",), at)
    assert new.meta == {"team": "x", "cost": 2}
    assert work.options(delay=60).new(1).delay == 60
    assert work.new(1).priority == 0


def test_arguments_that_do_not_fit_are_refused_when_the_job_is_made(app):
    @app.job
    def work(n: int) -> None: ...

    with pytest.raises(rj.InvalidArguments):
        work.new("x")
    with pytest.raises(rj.InvalidArguments):
        work.options(priority=1).new()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "with space"}, "a job type's name is"),
        ({"name": "x" * 129}, "a job type's name is"),
        ({"queue": ""}, "a queue's name is"),
        ({"queue": "with space"}, "a queue's name is"),
        ({"queue": "q" * 129}, "a queue's name is"),
        ({"queue": None}, "a queue's name is"),
        ({"priority": -1}, "priority is a .*number from 0 to 9, not -1"),
        ({"priority": 10}, "priority is a .*number from 0 to 9, not 10"),
        ({"priority": True}, "not True"),
        ({"priority": math.nan}, "not nan"),
        ({"max_attempts": 0}, "max_attempts is a .*number from 1 to 1000, not 0"),
        ({"max_attempts": 1001}, "not 1001"),
        ({"timeout": 0}, "timeout is a number of seconds above 0, or None, not 0"),
        ({"timeout": -5}, "not -5"),
        ({"timeout": math.nan}, "not nan"),
        ({"timeout": "5"}, "not '5'"),
        ({"tags": [""]}, "at most 32 tags of 1 to 64 characters"),
        ({"tags": ["t"] * 33}, "at most 32 tags"),
        ({"tags": ["t" * 65]}, "at most 32 tags"),
        ({"tags": [5]}, "at most 32 tags"),
        ({"tags": ["a\x00"]}, "at most 32 tags"),
        ({"tags": "urgent"}, "tags are a list of text, not 'urgent'"),
        ({"tags": 5}, "tags are a list of text, not 5"),
        ({"meta": "x"}, "meta is a mapping, not 'x'"),
        ({"backoff": 5}, "backoff is a function.* not 5"),
        ({"breaker": True}, r"breaker takes rj.Breaker\(...\) or None, not True"),
        ({"executor": "threads"}, "executor is where code runs: rj.in_threads.* not 'threads'"),
        ({"executor": rj.in_threads}, "executor is where code runs"),
        ({"name": 5}, "a job type's name is"),
    ],
)
def test_options_that_cannot_be_are_refused_where_the_type_is_declared(app, options, message):
    with pytest.raises(rj.InvalidOption, match=message):
        app.job(**{"name": "work", **options})(lambda: None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": -1}, "delay is a .*number from 0"),
        ({"delay": math.inf}, "not inf"),
        ({"delay": "60"}, "not '60'"),
        ({"scheduled_at": datetime(2030, 1, 1)}, "scheduled_at needs a time zone"),  # noqa: DTZ001 - its point
        ({"delay": 1, "scheduled_at": datetime(2030, 1, 1, tzinfo=UTC)}, "give delay or scheduled_at, not both"),
        ({"priority": 10}, "priority is a .*number from 0 to 9"),
        ({"queue": "with space"}, "a queue's name is"),
        ({"max_attempts": 0}, "max_attempts is a .*number from 1"),
        ({"tags": [""]}, "at most 32 tags"),
        ({"tags": "urgent"}, "tags are a list of text, not 'urgent'"),
        ({"meta": 5}, "meta is a mapping, not 5"),
    ],
)
def test_options_of_one_job_that_cannot_be_are_refused(app, options, message):
    @app.job(name="work")
    def work() -> None: ...

    with pytest.raises(rj.InvalidOption, match=message):
        work.options(**options)


@pytest.mark.parametrize(
    "how", [{"fail_max": 0}, {"probes": 0}, {"reset_timeout": 0}, {"reset_timeout": -1}, {"reset_timeout": math.nan}], ids=str
)
def test_a_breaker_that_cannot_be_is_refused(how):
    with pytest.raises(rj.InvalidOption, match=r"Breaker: (fail_max|probes|reset_timeout) is a"):
        rj.Breaker(**how)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 8}, "threads is where code runs: rj.in_threads.* not 8"),
        ({"telemetry": {"spans": {}}}, "telemetry takes rj.Telemetry"),
        ({"dsn": 5432}, "dsn=5432 .* is no text"),
    ],
)
def test_what_an_app_cannot_be_made_of_is_refused(options, message):
    with pytest.raises(rj.InvalidOption, match=message):
        rj.App(**options)


def test_a_name_is_taken_once(app):
    app.job(name="work")(lambda: None)
    with pytest.raises(rj.DuplicateJobType, match="two job types are named 'work'"):
        app.job(name="work")(lambda: None)


def test_what_is_no_function_is_refused(app):
    with pytest.raises(rj.InvalidOption, match="declares a function"):
        app.job("mail")


def test_a_name_that_nobody_declared_is_unknown(app):
    with pytest.raises(rj.UnknownJobType, match="there is no job type 'mail' in this app"):
        app.definition("mail")


@pytest.mark.parametrize("queue", ["mail", "0", "mail.eu:fast/now-2_x", "Q" * 128])
def test_names_that_a_queue_may_have(queue):
    check_queue(queue)


def test_the_defaults_are_those_of_the_contract():
    how = Options(name="work")
    assert (how.queue, how.priority, how.max_attempts, how.timeout, how.backoff, how.tags, how.meta) == (
        "default",
        0,
        20,
        None,
        None,
        (),
        {},
    )
    breaker: Any = how.breaker
    assert (breaker.fail_max, breaker.reset_timeout, breaker.probes, breaker.exclude) == (10, 30, 1, ())


@pytest.mark.parametrize("instant", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)], ids=["first", "last"])
def test_an_instant_that_the_database_takes_for_endless_is_refused(instant):
    definition = rj.App(dsn="postgresql://nowhere/x").job(name="work")(lambda: None)
    with pytest.raises(rj.InvalidOption, match="at most ten years away"):
        definition.options(scheduled_at=instant)
