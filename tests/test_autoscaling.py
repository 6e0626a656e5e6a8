"""Demand that follows load: the decision as a function of what was seen, and what drives it, on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from reactivex import operators as ops
from reactivex.subject import Subject

import rxjobs as rj
from rxjobs.autoscaling import Depth, Load, autoscale, decide
from rxjobs.demand import Demand
from rxjobs.events import AutoscaleStep
from rxjobs.source import Control
from rxjobs.testing import MemorySource, a_job
from rxjobs.testing.watched import runs
from tests.virtual import on_virtual_time

GENSTAGE = autoscale(1, 10, preset="genstage")
USUAL = autoscale(10, 110)


def decided(how: Any, demand: int, ready: int | None = None, oldest: float | None = None, **load: Any) -> int:
    depth = None if ready is None else Depth(ready, oldest)
    return decide(how, Load(demand=demand, depth=depth, **load)).demand


@pytest.mark.parametrize(
    ("ready", "demand", "wanted"),
    [
        (1001, 5, 7), (1000, 5, 6), (101, 5, 6), (100, 5, 5), (50, 5, 5), (10, 5, 5), (9, 5, 4), (0, 5, 4),
        (5000, 9, 10), (5000, 10, 10), (0, 1, 1), (1001, 1, 3),
    ],
)  # fmt: skip
def test_genstage_goes_by_how_many_are_ready_between_its_bounds(ready, demand, wanted):
    assert decided(GENSTAGE, demand, ready) == wanted


def test_genstage_goes_by_nothing_else():
    assert decided(GENSTAGE, 5, 1001, 1e6, loop_delay=60.0, cpu=1.0, held=5) == 7
    assert decided(GENSTAGE, 5, 50, 1e6) == 5


def test_its_bounds_are_1_and_10_unless_given():
    assert (autoscale(preset="genstage").min, autoscale(preset="genstage").max) == (1, 10)


@pytest.mark.parametrize(
    ("ready", "oldest", "wanted"),
    [
        (1101, 0.0, 75), (1100, 0.0, 60), (111, 0.0, 60), (110, 0.0, 50), (10, 0.0, 50), (9, 0.0, 40),
        (50, 5.0, 50), (50, 5.1, 60), (1, 9.0, 60),
    ],
)  # fmt: skip
def test_by_default_it_goes_by_depth_and_by_how_long_the_oldest_has_waited(ready, oldest, wanted):
    assert decided(USUAL, 50, ready, oldest) == wanted


@pytest.mark.parametrize(
    ("load", "reason"),
    [({"loop_delay": 0.2}, "the event loop of this node is late by 0.20 s"), ({"cpu": 0.95}, "95% of a processor")],
)
def test_a_node_that_is_busy_takes_less_however_much_there_is(load, reason):
    step = decide(USUAL, Load(demand=50, depth=Depth(10_000, 60.0), **load))
    assert step.demand == 40
    assert reason in step.reason
    assert decided(USUAL, 50, 0, **load) == 40
    assert decided(USUAL, 10, 10_000, **load) == 10


@pytest.mark.parametrize(
    ("load", "wanted"),
    [
        ({"came_back_full": True}, 60),
        ({"came_back_full": False, "held": 50}, 50),
        ({"came_back_full": False, "held": 25}, 40),
        ({"came_back_full": True, "cpu": 0.95}, 40),
    ],
)
def test_of_a_source_that_cannot_say_it_goes_by_what_fetches_give(load, wanted):
    assert decided(USUAL, 50, **load) == wanted


def test_every_reason_can_be_read():
    reasons = {
        decide(USUAL, Load(demand=50, depth=Depth(ready, oldest))).reason for ready, oldest in [(2000, 1), (50, 9), (0, 0), (50, 1)]
    }
    assert reasons == {
        "more than 1100 jobs are ready", "the oldest job has waited 9.0 s", "fewer than 10 jobs are ready", "50 jobs are ready",
    }  # fmt: skip


def test_thresholds_and_limits_are_a_matter_of_choice():
    how = autoscale(5, 50, above={10: 5, 100: 20}, below={3: -1, 1: -10}, latency=60, loop_delay=1, cpu=0.5)
    seen = [decided(how, 20, ready) for ready in (0, 2, 3, 10, 11, 101)]
    assert seen == [10, 19, 20, 20, 25, 40]
    assert how.most == 101
    assert (decided(how, 20, 3, 59), decided(how, 20, 3, 61)) == (20, 25)
    assert (decided(how, 20, 5, loop_delay=0.9), decided(how, 20, 5, loop_delay=1.1)) == (20, 19)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min": 0}, "min is a whole number from 1 to 1000000, not 0"),
        ({"min": 5, "max": 4}, "max is a whole number from 5 to 1000000, not 4"),
        ({"max": 2.5}, "not 2.5"),
        ({"preset": "gen"}, "preset is \"genstage\" or None, not 'gen'"),
        ({"every": 0}, "every is a number above 0, not 0"),
        ({"every": None}, "every is a number above 0, not None"),
        ({"latency": -1}, "latency is a number above 0, or None, not -1"),
        ({"above": {10: -1}}, "above maps how many jobs are ready to a step, such as {1000: 2, 100: 1}, not {10: -1}"),
        ({"above": 10}, "not 10"),
        ({"below": {10: 1}}, "below maps how many jobs are ready to a step, such as {10: -1}, not {10: 1}"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(rj.InvalidOption, match=message):
        rj.autoscale(**options)


def test_a_min_demand_that_does_not_fit_is_refused():
    with pytest.raises(rj.InvalidOption, match="min_demand is a whole number from 0 to max_demand - 1 = 9, not 10"):
        rj.pull(MemorySource(), max_demand=rj.autoscale(1, 10), min_demand=10)


def test_what_is_asked_by_hand_goes_before_what_is_followed():
    demand = Demand(10)
    demand.follow(4)
    assert (demand.max_demand, demand.min_demand, demand.is_resized) == (4, 2, False)
    demand.resize(7)
    demand.follow(5)
    assert (demand.max_demand, demand.is_resized) == (7, True)
    demand.resize(None)
    assert (demand.max_demand, demand.declared, demand.is_resized) == (5, 10, False)


class Deep(MemorySource):
    """A source that can say how much waits in it, and is steered as a queue is."""

    queue = "deep"

    def __init__(self, count: int, *, fails: bool = False) -> None:
        super().__init__(a_job() for _ in range(count))
        self.controls: Subject[Control] = Subject()
        self.fails = fails
        self.looked: list[int] = []

    async def depth(self, most: int) -> Depth:
        self.looked.append(most)
        if self.fails:
            raise ConnectionError("away")
        return Depth(min(most, len(self._ready)))


async def a_minute(job: rj.Job) -> None:
    await asyncio.sleep(60)


def scaled(source: Any, **options: Any) -> Any:
    how = rj.autoscale(1, 10, preset="genstage", every=1.0, **options)
    return rj.pull(source, max_demand=how).pipe(rj.tap(a_minute, concurrency=1000), rj.complete(), rj.ack())


def steps(observed: Any) -> list[tuple[int, int]]:
    return [(event.before, event.after) for event in observed.events if isinstance(event, AutoscaleStep)]


@on_virtual_time
async def test_demand_rises_step_by_step_with_a_deep_queue_and_each_step_is_told():
    source = Deep(5000)
    async with runs(scaled(source), grace=0) as observed:
        await asyncio.sleep(0.5)
        assert len(observed.running.held_ids) == 3
        await asyncio.sleep(3)
        assert steps(observed) == [(1, 3), (3, 5), (5, 7), (7, 9)]
        await asyncio.sleep(3)
        assert steps(observed)[4:] == [(9, 10)]
        await asyncio.sleep(120)
        assert len(observed.running.held_ids) == 10
    (first, *_) = (event for event in observed.events if isinstance(event, AutoscaleStep))
    assert (first.name, first.source, first.ready, first.reason) == (
        "autoscale.step",
        "deep",
        1001,
        "more than 1000 jobs are ready",
    )
    assert set(source.looked) == {1001}


@on_virtual_time
async def test_it_falls_again_when_the_queue_is_empty_and_what_is_held_beyond_is_not_dropped():
    source = Deep(5000)
    async with runs(scaled(source), grace=0) as observed:
        await asyncio.sleep(10)
        source._ready.clear()
        held = observed.running.held_ids
        await asyncio.sleep(9.5)
        assert steps(observed)[-9:] == [(n, n - 1) for n in range(10, 1, -1)]
        assert observed.running.held_ids == held
        assert len(held) == 7
        source.push(*(a_job() for _ in range(50)))
        await asyncio.sleep(60)
        assert len(observed.running.held_ids) == 1


@on_virtual_time
async def test_it_is_seen_at_once_that_there_is_more_room():
    """As soon as demand rises the source is asked, though nothing was acked and no wake came."""
    source = Deep(500)
    async with runs(scaled(source), grace=0):
        await asyncio.sleep(2.5)
        assert source.asked[0] == 1
        assert sum(source.asked) >= 2


@on_virtual_time
async def test_while_a_queue_is_scaled_by_hand_or_paused_it_rests_and_goes_on_from_where_it_was():
    source = Deep(5000)
    async with runs(scaled(source), grace=0) as observed:
        await asyncio.sleep(1.5)
        assert steps(observed) == [(1, 3), (3, 5)]
        source.controls.on_next(Control(max_demand=40))
        await asyncio.sleep(5)
        assert len(observed.running.held_ids) == 40
        assert len(steps(observed)) == 2
        source.controls.on_next(Control(is_paused=True))
        await asyncio.sleep(5)
        assert len(steps(observed)) == 2
        source.controls.on_next(Control())
        await asyncio.sleep(1)
        assert steps(observed)[2:] == [(5, 7)]


@on_virtual_time
async def test_a_source_that_fails_to_say_is_taken_for_one_that_cannot(caplog):
    caplog.set_level("CRITICAL", logger="rxjobs.autoscale")
    source = Deep(5000, fails=True)
    async with runs(scaled(source), grace=0) as observed:
        await asyncio.sleep(5.5)
        observed.never_broke()
        assert steps(observed)[:2] == [(1, 2), (2, 3)]


@on_virtual_time
async def test_without_a_depth_it_rises_while_fetches_come_back_full_and_falls_when_places_are_free():
    source = MemorySource(a_job() for _ in range(7))
    async with runs(scaled(source), grace=0) as observed:
        await asyncio.sleep(20)
        assert steps(observed)[:2] == [(1, 2), (2, 3)]
        await asyncio.sleep(200)
        assert steps(observed)[-1] == (2, 1)
        assert len(source.settled) == 7


@on_virtual_time
async def test_a_pipeline_that_breaks_goes_on_with_the_demand_that_it_had(caplog):
    caplog.set_level("CRITICAL", logger="rxjobs.runner")
    source, breaks = Deep(5000), [False] * 5 + [True] + [False] * 1000

    def fail(job: rj.Job) -> rj.Job:
        if breaks.pop(0):
            raise RuntimeError("broken")
        return job

    how = rj.autoscale(1, 10, preset="genstage", every=1.0)
    stream = rj.pull(source, max_demand=how).pipe(ops.map(fail), rj.tap(a_minute, concurrency=1000), rj.complete(), rj.ack())
    async with runs(stream, grace=0) as observed:
        await asyncio.sleep(3.5)
    befores = [before for before, _ in steps(observed)]
    assert befores == sorted(befores)
    assert befores.count(1) == 1


@on_virtual_time
async def test_a_loop_that_is_late_is_seen():
    """The clock jumps while the loop is held up, which is what a job that blocks it does."""
    loop = asyncio.get_running_loop()
    source = Deep(5000)
    how = rj.autoscale(1, 10, above={100: 2}, below={10: -1}, loop_delay=0.1, every=1.0)

    def block() -> None:
        loop.scheduler.sleep(0.9)

    async with runs(
        rj.pull(source, max_demand=how).pipe(rj.tap(a_minute, concurrency=99), rj.complete(), rj.ack()), grace=0
    ) as observed:
        await asyncio.sleep(1.5)
        for at in range(2, 12):
            loop.call_at(at - 0.5, block)
        await asyncio.sleep(9)
    seen = [event for event in observed.events if isinstance(event, AutoscaleStep)]
    assert [event.after for event in seen[:2]] == [3, 5]
    busy = [event for event in seen if event.loop_delay > 0.1]
    assert busy
    assert all(event.after == event.before - 1 and "the event loop of this node is late by" in event.reason for event in busy)
