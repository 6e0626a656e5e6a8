from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
import reactivex as rx
from reactivex import operators as ops
from reactivex.subject import Subject

import rxjobs as rj
from rxjobs.events import PipelineStopped
from rxjobs.operators.buffer import bytes_of_args
from rxjobs.source import Control
from rxjobs.testing import MemorySource, a_job, marbles
from rxjobs.testing.watched import Watched, runs
from tests.virtual import on_virtual_time


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


def sized(*sizes: int) -> dict[str, rj.Job]:
    return {letter: a_job(args={"size": size}) for letter, size in zip("abcdefgh", sizes, strict=False)}


def size_of(job: rj.Job) -> float:
    return job.args["size"]


def test_a_list_goes_on_when_one_more_job_would_make_it_too_large():
    marbles(rj.buffer(10, None, size=10, measure=size_of), "-abcd|", "---[ab]-([cd]|)", values=sized(4, 4, 4, 1))


def test_a_list_that_is_as_large_as_it_may_be_goes_on_at_once():
    marbles(rj.buffer(10, None, size=10, measure=size_of), "-abc-|", "--[ab]--([c]|)", values=sized(4, 6, 1))


def test_a_job_that_is_too_large_by_itself_goes_alone():
    marbles(rj.buffer(10, None, size=10, measure=size_of), "-abc-|", "--([a][b])--([c]|)", values=sized(4, 40, 1))


def test_count_time_and_size_each_send_a_list_on():
    marbles(
        rj.buffer(2, 5, size=10, measure=size_of), "abcd-ef-------|", "-[ab]-[cd]--[e]----[f]--|",
        values=sized(1, 1, 1, 1, 9, 9),
    )  # fmt: skip


def test_without_a_measure_size_counts_the_bytes_of_the_arguments():
    jobs = {"a": a_job(payload='{"x":"é"}'), "b": a_job(args={"x": "é"}), "c": a_job()}
    assert [bytes_of_args(job) for job in jobs.values()] == [10, 10, 2]
    marbles(rj.buffer(10, None, size=20), "-abc|", "--[ab]-([c]|)", values=jobs)


def test_by_time_or_size_alone_no_count_is_needed():
    marbles(rj.buffer(timespan=3), "-abc-----|", "----[abc]----|")
    marbles(rj.buffer(timespan=3, size=2, measure=lambda job: 1), "-abc-----|", "--[ab]---[c]--|")


@pytest.mark.parametrize("size", [-1, float("nan"), "1", None, True], ids=repr)
def test_what_is_no_size_is_a_failed_attempt_of_that_job(size):
    (finished, _) = marbles(
        rj.buffer(5, None, size=5, measure=lambda job: 1 if job.args else size), "ab|", "A-([b]|)",
        values={"a": a_job(), "b": a_job(args={"n": 1}), "A": rj.Retry},
    )  # fmt: skip
    assert "measure gives a number of at least 0, not" in finished.outcome.failure.message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0, "count": 1}, "size is a number of bytes, or of what measure counts, above 0, or None, not 0"),
        ({"size": True, "count": 1}, "not True"),
        ({"measure": size_of, "count": 1}, "measure says how large a job is, and needs size="),
        ({"measure": 5, "size": 1}, "measure is a function of a job, not 5"),
        ({"timespan": None}, "give a count or a timespan"),
        ({"timespan": None, "size": 5}, "give a count or a timespan"),
        ({"timespan": "1"}, "timespan is a number of seconds above 0, or None, not '1'"),
    ],
)
def test_limits_that_cannot_be_are_refused(options, message):
    with pytest.raises(rj.InvalidOption, match=message):
        rj.buffer(**options)


# lists that could never be full

TOO_LARGE = (
    r"rj.buffer\(11, None\) waits for 11 jobs, but its source holds 10 at most \(max_demand\).*raise max_demand to 11 or more"
)


def test_a_list_that_can_never_be_full_is_refused_when_the_pipeline_is_declared():
    source = rj.pull(MemorySource(), max_demand=10)
    with pytest.raises(rj.InvalidOption, match=TOO_LARGE):
        source.pipe(rj.buffer(11, None))
    with pytest.raises(rj.InvalidOption, match=TOO_LARGE):
        source.pipe(
            rj.filter(lambda job: True), rj.enrich(print), rj.tap(print), rj.rate_limit(1), rj.buffer(2), rj.buffer(11, None)
        )
    source.pipe(rj.buffer(10, None))
    source.pipe(rj.buffer(11, 1.0))


def test_of_a_demand_that_follows_load_the_largest_counts():
    source = rj.pull(MemorySource(), max_demand=rj.autoscale(2, 10))
    with pytest.raises(rj.InvalidOption, match=TOO_LARGE):
        source.pipe(rj.buffer(11, None))
    source.pipe(rj.buffer(10, None))


async def test_behind_a_foreign_operator_it_is_refused_when_the_pipeline_is_started():
    source = MemorySource([a_job()])
    fine = rj.pull(MemorySource(), max_demand=10).pipe(rj.complete(), rj.ack())
    pipeline = rj.pull(source, max_demand=10).pipe(ops.do_action(lambda _: None), rj.buffer(11, None), rj.complete(), rj.ack())
    with pytest.raises(rj.InvalidOption, match=TOO_LARGE):
        async with runs(fine, pipeline):
            pass
    await asyncio.sleep(0)
    assert source.asked == []


async def test_without_a_runner_it_is_refused_by_an_error_of_the_stream():
    errors = list[Exception]()
    stream = rj.pull(MemorySource(), max_demand=10).pipe(ops.map(lambda job: job), rj.buffer(11, None))
    stream.subscribe(on_error=errors.append)
    assert [type(error) for error in errors] == [rj.InvalidOption]


async def test_behind_a_merge_what_its_sources_hold_together_counts():
    def merged(count: int) -> rx.Observable[Any]:
        sources = [rj.pull(MemorySource(), max_demand=6), rj.pull(MemorySource(), max_demand=4)]
        return rx.merge(*sources).pipe(rj.buffer(count, None), rj.complete(), rj.ack())

    async with runs(merged(11)) as observed:
        with pytest.raises(rj.InvalidOption, match=TOO_LARGE):  # a merge subscribes its sources a tick later
            await observed.running.wait()
    async with runs(merged(10)) as observed:
        await asyncio.sleep(0.01)
        observed.never_broke()
        assert not any(isinstance(event, PipelineStopped) for event in observed.events)


class Scaled(MemorySource):
    """A source that is scaled at run time, as a queue is."""

    def __init__(self, jobs: list[rj.Job]) -> None:
        super().__init__(jobs)
        self.controls: Subject[Control] = Subject()


async def together(jobs: list[rj.Job]) -> None:
    """Write them at once."""


@on_virtual_time
async def test_scaled_below_its_count_a_list_goes_on_as_it_is_when_no_more_can_come():
    source, lists = Scaled([a_job() for _ in range(40)]), list[int]()
    pipeline = rj.pull(source, max_demand=10).pipe(
        rj.buffer(8, None), ops.do_action(lambda jobs: lists.append(len(jobs))), rj.execute_batch(together), rj.ack()
    )
    async with runs(pipeline) as observed:
        await asyncio.sleep(0)
        source.controls.on_next(Control(max_demand=3))
        await asyncio.sleep(10)
        assert len(source.settled) == 40
    observed.hold_to_the_laws()
    assert 3 in lists


@on_virtual_time
async def test_it_goes_on_as_it_is_where_more_is_held_than_is_asked_beyond():
    """Six of ten were there at first: more than min_demand are held, so that no more are asked for before they have gone."""
    watched = Watched(MemorySource([a_job() for _ in range(6)]), 10)
    pipeline = rj.pull(watched, max_demand=10).pipe(rj.buffer(8, None), rj.execute_batch(together), rj.ack())
    async with runs(pipeline):
        await asyncio.sleep(1)
        assert len(watched.settled) == 6
    watched.hold_to_the_laws()


@on_virtual_time
async def test_while_others_of_its_source_are_worked_on_it_waits_for_them():
    async def five_seconds(jobs: list[rj.Job]) -> None:
        await asyncio.sleep(5)

    loop, lists, source = asyncio.get_running_loop(), list[tuple[float, int]](), MemorySource([a_job() for _ in range(10)])
    pipeline = rj.pull(source, max_demand=10).pipe(
        rj.buffer(7, None),
        ops.do_action(lambda jobs: lists.append((loop.time(), len(jobs)))),
        rj.execute_batch(five_seconds),
        rj.ack(),
    )
    async with runs(pipeline):
        await asyncio.sleep(1)
        source.push(*(a_job() for _ in range(4)))
        await asyncio.sleep(20)
    assert lists == [(0.0, 7), (pytest.approx(5), 7)]


@on_virtual_time
async def test_what_waits_goes_back_when_its_queue_is_paused():
    source = Scaled([a_job() for _ in range(3)])
    async with runs(rj.pull(source, max_demand=10).pipe(rj.buffer(5, None), rj.execute_batch(together), rj.ack())):
        await asyncio.sleep(1)
        source.controls.on_next(Control(is_paused=True))
        await asyncio.sleep(0.1)
        assert [one.outcome.reason for one in source.settled] == ["its queue is paused"] * 3
        source.controls.on_next(Control())
        source.push(*(a_job() for _ in range(2)))
        await asyncio.sleep(1)
        assert sum(one.outcome == rj.Complete() for one in source.settled) == 5


@on_virtual_time
async def test_a_timespan_of_a_list_that_went_back_does_not_cut_the_next_one_short():
    source, lists = Scaled([a_job()]), list[float]()
    loop = asyncio.get_running_loop()
    pipeline = rj.pull(source, max_demand=10).pipe(
        rj.buffer(5, 4), ops.do_action(lambda _: lists.append(loop.time())), rj.execute_batch(together), rj.ack()
    )
    async with runs(pipeline):
        await asyncio.sleep(3)
        source.controls.on_next(Control(is_paused=True))
        source.controls.on_next(Control())
        await asyncio.sleep(10)
    assert lists == [pytest.approx(7)]


@pytest.mark.parametrize("kind", ["memory", "iterable", "async iterable"])
@on_virtual_time
async def test_the_last_list_of_a_source_that_ends_goes_on_as_it_is(kind):
    """The source ends when its last job is done, which waits for more."""

    async def items() -> Any:
        for _ in range(10):
            await asyncio.sleep(1)
            yield a_job()

    lists = list[int]()
    source = {
        "memory": MemorySource([a_job() for _ in range(10)]),
        "iterable": rj.IterableSource([a_job() for _ in range(10)]),
        "async iterable": rj.AsyncIterableSource(items()),
    }[kind]
    if isinstance(source, MemorySource):
        source.close()
    pipeline = rj.pull(source, max_demand=20).pipe(
        rj.buffer(7, None), ops.do_action(lambda jobs: lists.append(len(jobs))), rj.execute_batch(together), rj.ack()
    )
    async with runs(pipeline) as observed:
        await asyncio.wait_for(observed.running.wait(), 100)
    assert lists == [7, 3]


@on_virtual_time
async def test_what_waits_is_released_when_its_node_is_cut_off():
    source = MemorySource([a_job(node=uuid4()) for _ in range(4)])
    async with runs(rj.pull(source, max_demand=10).pipe(rj.buffer(9, None), rj.complete(), rj.ack())) as observed:
        await asyncio.sleep(1)
        before = len(source.settled)
        observed.running.cut_off()
        await asyncio.sleep(0)
        await asyncio.sleep(1)
        reasons = [one.outcome.reason for one in source.settled[before:4]]
        assert reasons == ["its node was cut off"] * (4 - before)
        assert reasons
