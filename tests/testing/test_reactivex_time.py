"""reactivex's own operators on time are on the time of the line, whether they are given the TestScheduler or find it themselves."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import reactivex as rx
from reactivex import operators as ops
from reactivex.testing import ReactiveTest, TestScheduler

import rxjobs as rj
from rxjobs.testing import marbles

Operator = Callable[[rx.Observable[Any]], rx.Observable[Any]]

LINE = "-a-bc-----d|"
TWO_SECONDS = timedelta(seconds=2)


def into_lists(windows: Operator) -> Operator:
    return rx.compose(windows, ops.flat_map(ops.to_list()))


def every_two_seconds(jobs: rx.Observable[Any], scheduler: Any) -> rx.Observable[Any]:
    return rx.interval(2.0, scheduler=scheduler).pipe(ops.zip(jobs), ops.map(lambda two: two[1]))


def at_least_two_seconds_later(scheduler: Any) -> Operator:
    return rx.compose(
        ops.timestamp(scheduler=scheduler),
        ops.pairwise(),
        ops.filter(lambda two: two[1].timestamp - two[0].timestamp >= TWO_SECONDS),
        ops.map(lambda two: two[1].value),
    )


def after_two_seconds(scheduler: Any) -> Operator:
    return rx.compose(
        ops.time_interval(scheduler=scheduler), ops.filter(lambda one: one.interval >= TWO_SECONDS), ops.map(lambda one: one.value)
    )


def again_after_three_seconds(scheduler: Any) -> Operator:
    def again(shared: rx.Observable[Any]) -> rx.Observable[Any]:
        return rx.merge(shared, shared.pipe(ops.delay_subscription(3.0, scheduler=scheduler)))

    return ops.replay(window=2.0, mapper=again, scheduler=scheduler)


TIMED: dict[str, tuple[Callable[[Any], Operator], str]] = {
    "buffer_with_time": (lambda s: ops.buffer_with_time(3.0, scheduler=s), "---[ab]--[c]--[]-([d]|)"),
    "buffer_with_time_or_count": (lambda s: ops.buffer_with_time_or_count(4.0, 2, scheduler=s), "---[ab]---[c]---([d]|)"),
    "debounce": (lambda s: ops.debounce(2.0, scheduler=s), "------c----(d|)"),
    "delay": (lambda s: ops.delay(2.0, scheduler=s), "---a-bc-----d|"),
    "delay_subscription": (lambda s: ops.delay_subscription(2.0, scheduler=s), "---bc-----d|"),
    "delay_with_mapper": (lambda s: ops.delay_with_mapper(lambda _: rx.timer(2.0, scheduler=s)), "---a-bc-----(d|)"),
    "interval": (lambda s: lambda jobs: every_two_seconds(jobs, s), "--a-b-c---d|"),
    "observe_on": (lambda s: (lambda jobs: jobs) if s is None else ops.observe_on(s), LINE),
    "replay": (again_after_three_seconds, "-a-(bab)(cc)-----(dd)|"),
    "sample": (lambda s: ops.sample(3.0, scheduler=s), "---b--c-----(d|)"),
    "skip_last_with_time": (lambda s: ops.skip_last_with_time(2.0, scheduler=s), "---a------(bc)|"),
    "skip_until_with_time": (lambda s: ops.skip_until_with_time(3.5, scheduler=s), "----c-----d|"),
    "skip_with_time": (lambda s: ops.skip_with_time(3.5, scheduler=s), "----c-----d|"),
    "subscribe_on": (lambda s: (lambda jobs: jobs) if s is None else ops.subscribe_on(s), LINE),
    "take_last_with_time": (lambda s: ops.take_last_with_time(3.0, scheduler=s), "-----------(d|)"),
    "take_until_with_time": (lambda s: ops.take_until_with_time(5.0, scheduler=s), "-a-bc|"),
    "take_with_time": (lambda s: ops.take_with_time(5.0, scheduler=s), "-a-bc|"),
    "throttle_first": (lambda s: ops.throttle_first(2.5, scheduler=s), "-a--c-----d|"),
    "throttle_with_mapper": (lambda s: ops.throttle_with_mapper(lambda _: rx.timer(2.0, scheduler=s)), "------c----(d|)"),
    "throttle_with_timeout": (lambda s: ops.throttle_with_timeout(2.0, scheduler=s), "------c----(d|)"),
    "time_interval": (after_two_seconds, "---b------d|"),
    "timeout": (lambda s: ops.timeout(4.0, rx.empty(), scheduler=s), "-a-bc---|"),
    "timeout_with_mapper": (
        lambda s: ops.timeout_with_mapper(rx.timer(9.0, scheduler=s), lambda _: rx.timer(4.0, scheduler=s), rx.empty()),
        "-a-bc---|",
    ),
    "timestamp": (at_least_two_seconds_later, "---b------d|"),
    "window_with_time": (lambda s: into_lists(ops.window_with_time(3.0, scheduler=s)), "---[ab]--[c]--[]-([d]|)"),
    "window_with_time_or_count": (
        lambda s: into_lists(ops.window_with_time_or_count(4.0, 2, scheduler=s)),
        "---[ab]---[c]---([d]|)",
    ),
}
"""Each operator, made with the scheduler that is given or None, and what it makes of the line."""
NO_STAGE = {"to_marbles"}
"""Takes a scheduler, and makes one text of all that came."""


@pytest.mark.parametrize("name", TIMED)
@pytest.mark.parametrize("is_given", [True, False], ids=["given", "not given"])
def test_the_operator_is_on_the_time_of_the_line(name, is_given):
    make, expect = TIMED[name]
    scheduler = TestScheduler() if is_given else None
    marbles(make(scheduler), LINE, expect, scheduler=scheduler)


def test_no_operator_that_takes_a_scheduler_is_left_out():
    taking = {
        name
        for name, one in inspect.getmembers(ops, inspect.isfunction)
        if not name.startswith("_") and "scheduler" in inspect.signature(one).parameters
    }
    assert taking - NO_STAGE <= TIMED.keys()


def test_coroutines_and_operators_share_the_time():
    async def two_seconds(job: rj.Job) -> None:
        await asyncio.sleep(2)

    time = TestScheduler()
    stages = rx.compose(ops.delay(1.0, scheduler=time), rj.tap(two_seconds), ops.delay(0.5), ops.delay(0.5, scheduler=time))
    marbles(stages, "-a-b----|", "-----a-b--|", scheduler=time)


def test_what_a_user_schedules_comes_at_its_time():
    time = TestScheduler()
    end = time.create_hot_observable(ReactiveTest.on_next(4.0, "enough"))
    marbles(ops.take_until(end), LINE, "-a-b|", scheduler=time)
    assert time.clock == 4.0


def test_a_line_begins_at_the_time_that_a_scheduler_shows():
    time = TestScheduler()
    for _ in range(2):
        marbles(ops.delay(1.0, scheduler=time), "-a|", "--a|", scheduler=time)
    assert time.clock == 6.0


def test_dates_are_those_of_a_scheduler_that_is_given():
    time = TestScheduler()
    date = time.to_datetime(5.0)
    marbles(ops.take_until_with_time(date), LINE, "-a-bc|", scheduler=time)


def test_the_stages_of_a_pipeline_are_on_the_time_of_operators_between_them():
    time = TestScheduler()

    async def second(job: rj.Job) -> None:
        await asyncio.sleep(1)

    async def write(jobs: list[rj.Job]) -> None:
        """All of them are complete."""

    pipeline = rj.pull(rj.MemorySource(), max_demand=4).pipe(
        rj.tap(second), ops.debounce(2.0, scheduler=time), rj.buffer(2, timespan=3), rj.execute_batch(write), rj.ack()
    )
    # a was dropped at 2, when b came; that is noticed, and it comes again after 5 seconds
    marbles(pipeline, "ab---------------|", "-------B-----A---|", scheduler=time)


def test_what_an_operator_on_time_raises_is_raised_to_the_test():
    time = TestScheduler()
    time.schedule_absolute(2.0, lambda scheduler, state: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        marbles(ops.delay(1.0, scheduler=time), LINE, "^", scheduler=time)
