"""reactivex's own operators in the middle of a pipeline: what they make of jobs, and that none is lost in them."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from typing import Any

import pytest
import reactivex as rx
from reactivex import operators as ops

import rxjobs as rj
from rxjobs.events import JobFailed
from rxjobs.testing import MemorySource, a_job, marbles
from rxjobs.testing.watched import Watched, runs
from tests.operators.dispatched import Runs, a_type_of
from tests.virtual import on_virtual_time


def keyed(**keys: str) -> dict[str, rj.Job]:
    """Jobs by letter, each with a key."""
    return {letter: a_job(args={"key": key, "letter": letter}) for letter, key in keys.items()}


def key(job: rj.Job) -> str:
    return str(job.args["key"])


def pulled(max_demand: int = 10) -> rx.Observable[rj.Job]:
    """Jobs as they come on the line of a test."""
    return rj.pull(MemorySource(), max_demand=max_demand)


async def second(job: rj.Job) -> None:
    await asyncio.sleep(1)


def watching(count: int, max_demand: int = 10, **fields: Any) -> Watched:
    source = MemorySource(a_job(args={"n": n, "key": n % 3}, **fields) for n in range(count))
    source.close()
    return Watched(source, max_demand)


def test_group_by_gives_each_key_a_line_of_its_own():
    one_at_a_time = rj.tap(second, concurrency=1)
    pipeline = pulled().pipe(ops.group_by(key), ops.flat_map(lambda group: group.pipe(one_at_a_time, rj.complete())), rj.ack())
    marbles(pipeline, "(abcd)|", "-(AC)B(D|)", values=keyed(a="x", b="x", c="y", d="x"))


def test_each_key_may_have_batches_of_its_own():
    lists = list[str]()

    async def write(jobs: list[rj.Job]) -> None:
        lists.append("".join(job.args["letter"] for job in jobs))

    batches = rx.compose(rj.buffer(2, timespan=5), rj.execute_batch(write))
    pipeline = pulled().pipe(ops.group_by(key), ops.flat_map(lambda group: group.pipe(batches)), rj.ack())
    marbles(pipeline, "abcd|", "--(AC)---(BD|)", values=keyed(a="x", b="y", c="x", d="z"))
    assert lists == ["ac", "b", "d"]


def test_a_window_by_count_becomes_a_list_that_is_executed_together():
    lists = list[int]()

    async def write(jobs: list[rj.Job]) -> None:
        lists.append(len(jobs))

    pipeline = pulled().pipe(
        ops.window_with_count(3), ops.flat_map(lambda window: window.pipe(ops.to_list())), rj.execute_batch(write), rj.ack()
    )
    marbles(pipeline, "a-b-c-(def)|", "----(ABC)-(DEF)|")
    assert lists == [3, 3]


def test_a_window_by_time_tells_how_many_ended_in_each():
    counts = list[int]()
    counting = rx.compose(ops.window_with_time(5.0), ops.flat_map(ops.count()), ops.do_action(counts.append))
    marbles(lambda jobs: jobs.pipe(ops.publish(lambda shared: rx.merge(shared, shared.pipe(counting, ops.ignore_elements())))),
            "ab-c-----d--|", "ab-c-----d--|")  # fmt: skip
    assert counts == [3, 1, 0]


def test_scan_counts_what_was_acked_as_it_goes():
    totals = list[dict[str, int]]()

    def count(so_far: Counter[str], finished: rj.Finished) -> Counter[str]:
        return so_far + Counter([type(finished.outcome).__name__])

    odd = rj.filter(lambda job: job.args["letter"] != "b", otherwise=rj.Cancel())
    total = rx.compose(ops.scan(count, Counter()), ops.do_action(lambda now: totals.append(dict(now))), ops.ignore_elements())
    marbles(pulled().pipe(odd, rj.complete(), rj.ack(), total), "abc|", "---|")
    assert totals == [{"Complete": 1}, {"Complete": 1, "Cancel": 1}, {"Complete": 2, "Cancel": 1}]


def test_scan_may_carry_something_from_job_to_job():
    def number(before: rj.Job | None, job: rj.Job) -> rj.Job:
        return job.assign({"nth": before.assigns["nth"] + 1 if before is not None else 1})

    pipeline = pulled(2).pipe(ops.scan(number, None), rj.tap(second), rj.complete(), rj.ack())
    items = marbles(pipeline, "abcd|", "-ABC(D|)")
    assert [one.job.assigns["nth"] for one in items] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("operators", "line"),
    [
        ((ops.buffer_with_count(2),), "-(AB)-(CD)|"),
        ((ops.delay(3),), "---ABCD--|"),
        ((ops.do_action(lambda job: None),), "ABCD|"),
        ((ops.start_with(),), "ABCD|"),
        ((ops.buffer_with_time_or_count(3, 3),), "--(ABC)--(D|)"),
    ],
    ids=["buffer_with_count", "delay", "do_action", "start_with", "buffer_with_time_or_count"],
)
def test_what_gathers_or_holds_jobs_back_loses_none(operators, line):
    got = marbles(pulled().pipe(*operators, rj.execute_batch(nothing), rj.ack()), "abcd|", line)
    assert len(got) == 4


async def nothing(jobs: list[rj.Job]) -> None:
    """All are complete."""


@pytest.mark.parametrize(
    "operators",
    [
        (ops.group_by(lambda job: job.args["key"]), ops.flat_map(lambda group: group.pipe(rj.tap(second), rj.complete()))),
        (ops.window_with_count(4), ops.flat_map(lambda window: window.pipe(ops.to_list())), rj.tap(second), rj.complete()),
        (ops.window_with_time(0.5), ops.concat_map(lambda window: window.pipe(rj.tap(second), rj.complete()))),
        (ops.throttle_first(0.01), rj.tap(second), rj.complete()),
        (ops.pairwise(), ops.map(list), rj.tap(second), rj.complete()),
    ],
    ids=["group_by", "window_with_count", "window_with_time", "throttle_first", "pairwise"],
)
@pytest.mark.parametrize("grace", [60.0, 0.0])
@on_virtual_time
async def test_stopped_or_killed_in_the_middle_no_job_is_lost_or_doubled(operators: Any, grace: float):
    watched = watching(100)
    async with runs(rj.pull(watched, max_demand=10).pipe(*operators, rj.ack()), grace=grace) as observed:
        await asyncio.sleep(3.3)
    watched.hold_to_the_laws()
    observed.never_broke()
    assert not observed.running.held_ids


@on_virtual_time
async def test_stages_inside_of_a_group_belong_to_its_pipeline():
    cancelled = list[int]()

    async def forever(job: rj.Job) -> None:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            cancelled.append(job.id)
            raise

    watched = watching(5)
    stream = rj.pull(watched, max_demand=5).pipe(
        ops.group_by(lambda job: job.args["key"]), ops.flat_map(lambda group: group.pipe(rj.tap(forever), rj.complete())), rj.ack()
    )
    async with runs(stream, grace=0):
        await asyncio.sleep(1)
    assert len(cancelled) == 5
    assert [type(one.outcome) for one in watched.settled] == [rj.Release] * 5


@on_virtual_time
async def test_an_operator_that_breaks_restarts_its_pipeline_and_jobs_in_flight_of_all_sources_are_acked_once():
    worked = Runs(lambda _: 1.0, key=lambda job: job.id)
    first, other = watching(40, definition=a_type_of(worked)), watching(40, definition=a_type_of(worked))
    left = [3]

    def fragile(item: Any) -> rx.Observable[Any]:
        if left[0] and item.args["n"] % 7 == 3:
            left[0] -= 1
            return rx.throw(RuntimeError("an observable of somebody else's broke"))
        return rx.just(item)

    sources = [rj.pull(one, max_demand=10) for one in (first, other)]
    stream = rx.merge(*sources).pipe(ops.flat_map(fragile), rj.execute(), rj.ack())
    async with runs(stream) as observed:
        await observed.running.wait()
    assert sum(event.name == "pipeline.restart" for event in observed.events) >= 2
    for one in (first, other):
        one.hold_to_the_laws()
        completed = [done.job.id for done in one.settled if isinstance(done.outcome, rj.Complete)]
        assert len(completed) == len(set(completed)) == 40
    assert len(worked.began) == 80
    assert worked.overlaps == []


@on_virtual_time
async def test_a_subscriber_of_events_that_raises_harms_no_job_and_no_other_subscriber():
    watched, heard = watching(30), list[str]()

    def raising(event: Any) -> None:
        raise RuntimeError("nobody's business")

    stream = rj.pull(watched, max_demand=5).pipe(rj.filter(lambda job: job.args["n"] % 2), rj.tap(second), rj.complete(), rj.ack())
    async with runs(stream) as observed:
        observed.running.events.subscribe(raising)
        observed.running.events.pipe(ops.map(lambda event: 1 / 0)).subscribe(lambda _: None, on_error=lambda _: None)
        observed.running.events.subscribe(lambda event: heard.append(event.name))
        await observed.running.wait()
    watched.hold_to_the_laws()
    observed.hold_to_the_laws()
    assert len(watched.settled) == 30
    assert heard.count("job.stop") == 30


@on_virtual_time
@pytest.mark.parametrize("stage", [rj.enrich, rj.map, rj.tap, rj.filter], ids=lambda stage: stage.__name__)
async def test_who_keeps_what_was_told_of_a_failure_keeps_no_job_that_is_dropped_after_it(stage):
    def fail(job: rj.Job) -> Any:
        try:
            raise KeyError(job.id)
        except KeyError:
            raise ValueError("no") from None

    watched = watching(1)
    pipeline = rj.pull(watched, max_demand=1).pipe(stage(fail), ops.filter(lambda item: False), rj.complete(), rj.ack())
    async with runs(pipeline, grace=0) as observed:
        await asyncio.sleep(1)
        gc.collect()
        await asyncio.sleep(1)
        assert [type(one.outcome) for one in watched.settled] == [rj.Retry]
        (told,) = [event for event in observed.events if isinstance(event, JobFailed)]
        assert "ValueError: no" in told.error.traceback
