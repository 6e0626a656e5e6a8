"""Sources of items: of anything that can be iterated over, also asynchronously."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
import reactivex as rx
from reactivex import operators as ops

import rxjobs as rj
from rxjobs.outcome import Finished
from rxjobs.sources import iterable
from rxjobs.testing import a_job, conformance, job_type
from rxjobs.testing.watched import Watched, runs
from tests.virtual import on_virtual_time

KINDS = ["iterable", "async iterable"]


async def asynchronously(items: Any) -> AsyncIterator[Any]:
    for item in items:
        yield item


def source_of(kind: str, items: Any, *args: Any, **options: Any) -> Any:
    if kind == "iterable":
        return rj.IterableSource(items, *args, **options)
    return rj.AsyncIterableSource(asynchronously(items), *args, **options)


async def greet(name: str, day: date = date(2024, 1, 1)) -> str:
    return f"{name}, {day}"


class Counted:
    """Numbers, and how many of them were taken."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.taken = 0
        self.is_closed = False

    def __iter__(self) -> Iterator[int]:
        try:
            for n in range(self.count):
                self.taken += 1
                yield n
        finally:
            self.is_closed = True

    async def slowly(self, seconds: float) -> AsyncIterator[int]:
        try:
            for n in range(self.count):
                await asyncio.sleep(seconds)
                self.taken += 1
                yield n
        finally:
            await asyncio.sleep(0)
            self.is_closed = True


def numbered(n: int) -> rj.Job:
    return a_job(args={"n": n})


@pytest.mark.parametrize("kind", KINDS)
async def test_it_keeps_the_laws(kind):
    await conformance.source(lambda count: source_of(kind, range(count), numbered))


async def test_an_async_iterable_that_takes_its_time_keeps_the_laws_too():
    async def slowly(count: int) -> AsyncIterator[rj.Job]:
        for n in range(count):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            yield numbered(n)

    source = Watched(rj.AsyncIterableSource(slowly(300)), 20)
    async with runs(rj.pull(source, max_demand=20).pipe(rj.complete(), rj.ack())) as observed:
        await asyncio.wait_for(observed.running.wait(), 30)
    source.hold_to_the_laws()
    observed.hold_to_the_laws()
    assert len(source.settled) == 300


@pytest.mark.parametrize("kind", KINDS)
async def test_items_become_jobs_of_a_job_type(kind):
    definition = job_type(greet, queue="mail", max_attempts=3)
    source = source_of(kind, ["Ada", "Grace"], definition)
    results = list[Any]()
    pipeline = rj.pull(source, max_demand=5).pipe(
        rj.execute(), rj.ack(), ops.do_action(lambda one: results.append((one.job.queue, one.job.max_attempts, one.outcome.result)))
    )
    async with runs(pipeline) as observed:
        await asyncio.wait_for(observed.running.wait(), 10)
    assert sorted(results) == [("mail", 3, "Ada, 2024-01-01"), ("mail", 3, "Grace, 2024-01-01")]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_function_may_make_jobs_of_job_types_that_the_app_knows(kind):
    definition = job_type(greet)

    class App:
        def definition(self, name: str) -> Any:
            assert name == definition.name
            return definition

    for make in (lambda name: definition.new(name, day=date(2024, 2, 29)), None):
        items = ["Ada"] if make else [definition.new("Ada", day=date(2024, 2, 29))]
        (job,) = await source_of(kind, items, make, app=App()).fetch(5)
        assert (job.type, job.args, job.attempt) == (definition.name, {"name": "Ada", "day": date(2024, 2, 29)}, 1)
    (job,) = await source_of(kind, ["Ada"], definition.new).fetch(5)
    assert job.args["name"] == "Ada"


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_no_job_and_made_into_none_is_refused_with_advice(kind):
    with pytest.raises(TypeError, match=r"needs make=, a job type or a function of an item .*: 5 is neither"):
        await source_of(kind, [5]).fetch(1)
    with pytest.raises(rj.InvalidOption, match="needs app=, the app that knows the job type"):
        await source_of(kind, [job_type(greet).new("Ada")]).fetch(1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rj.IterableSource(5), "IterableSource takes an iterable, not 5"),
        (lambda: rj.IterableSource(asynchronously([])), "use rj.AsyncIterableSource"),
        (lambda: rj.AsyncIterableSource([1]), r"takes an async iterable, not \[1\]; use rj.IterableSource"),
        (lambda: rj.IterableSource([], 5), "IterableSource: make is a function, not 5"),
        (lambda: rj.IterableSource([], on_settle=5), "IterableSource: on_settle is a function, not 5"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(rj.InvalidOption, match=message):
        make()


@on_virtual_time
async def test_no_more_items_are_taken_than_jobs_are_asked_for():
    items = Counted(1000)
    source = rj.IterableSource(items, numbered)
    held = list[rj.Job]()
    subscription = rj.pull(source, max_demand=10).subscribe(held.append)
    await asyncio.sleep(1)
    assert (items.taken, len(held)) == (10, 10)
    subscription.dispose()


@on_virtual_time
async def test_an_async_item_is_waited_for_only_when_a_job_was_asked_for():
    items = Counted(1000)
    source = rj.AsyncIterableSource(items.slowly(1), numbered)
    held = list[rj.Job]()
    subscription = rj.pull(source, max_demand=10).subscribe(held.append)
    await asyncio.sleep(3.5)
    assert (items.taken, len(held)) == (3, 3)  # each as it comes, without waiting for more
    await asyncio.sleep(100)
    assert len(held) == 6  # one more than min_demand: then it is not asked
    assert items.taken == 7  # the one that is on its way when it gave the last stays with the source
    subscription.dispose()


@pytest.mark.parametrize("outcome", [rj.Retry(5), rj.Snooze(7), rj.Release(2), rj.Release()], ids=repr)
@pytest.mark.parametrize("kind", KINDS)
@on_virtual_time
async def test_what_is_not_done_comes_back_after_its_delay_before_new_items(kind, outcome):
    source = source_of(kind, range(3), numbered)
    woken, loop = list[float](), asyncio.get_running_loop()
    subscription = source.wakes.subscribe(lambda _: woken.append(loop.time()))
    (job,) = await source.fetch(1)
    await source.settle([Finished(job.assign({"found": "it"}), outcome)])
    await asyncio.sleep(10)
    assert woken[0] == pytest.approx(getattr(outcome, "delay", getattr(outcome, "seconds", 0)))
    (again, other) = await source.fetch(2)
    assert (again.id, again.args, again.assigns) == (job.id, {"n": 0}, {})
    assert again.attempt == (2 if isinstance(outcome, rj.Retry) else 1)
    assert other.args == {"n": 1}
    subscription.dispose()


@pytest.mark.parametrize("kind", KINDS)
@on_virtual_time
async def test_the_stream_ends_when_the_last_item_is_done(kind):
    """The last is tried twice."""
    loop, ended = asyncio.get_running_loop(), list[float]()

    async def once_in_vain(n: int) -> None:
        if n == 4 and not ended:
            ended.append(0.0)
            raise rj.Retry(60)

    settled = list[Finished]()
    source = source_of(kind, range(5), job_type(once_in_vain), on_settle=settled.append)
    async with runs(rj.pull(source, max_demand=2).pipe(rj.execute(), rj.ack())) as observed:
        await asyncio.wait_for(observed.running.wait(), 1000)
        assert loop.time() == pytest.approx(60, abs=1)
    observed.hold_to_the_laws()
    assert [type(one.outcome).__name__ for one in settled].count("Complete") == 5
    assert len(settled) == 6


@pytest.mark.parametrize("kind", KINDS)
async def test_an_empty_one_ends_at_once(kind):
    async with runs(rj.pull(source_of(kind, []), max_demand=2).pipe(rj.complete(), rj.ack())) as observed:
        await asyncio.wait_for(observed.running.wait(), 10)
    observed.hold_to_the_laws()


@pytest.mark.parametrize("kind", KINDS)
@on_virtual_time
async def test_on_settle_that_raises_is_tried_again_and_told_of_nothing_twice(kind, caplog):
    caplog.set_level(logging.CRITICAL, logger="rxjobs.demand")
    told, fails = list[int](), [True, True]

    async def on_settle(finished: Finished) -> None:
        if finished.job.args["n"] == 1 and fails:
            fails.pop()
            raise ConnectionError("away")
        told.append(finished.job.args["n"])

    watched = Watched(source_of(kind, range(4), numbered, on_settle=on_settle), 10)
    async with runs(rj.pull(watched, max_demand=10).pipe(rj.complete(), rj.ack())) as observed:
        await asyncio.wait_for(observed.running.wait(), 100)
    watched.hold_to_the_laws()
    assert told == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
@on_virtual_time
async def test_what_reading_raises_breaks_the_pipeline_and_the_jobs_before_it_are_done(kind, caplog):
    caplog.set_level(logging.CRITICAL, logger="rxjobs.runner")

    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ConnectionError("away")

    settled = list[Finished]()
    source = source_of(kind, items(), numbered, on_settle=settled.append)
    async with runs(rj.pull(source, max_demand=10).pipe(rj.complete(), rj.ack())) as observed:
        await asyncio.wait_for(observed.running.wait(), 100)  # a generator that has raised has ended
    restarts = [event for event in observed.events if event.name == "pipeline.restart"]
    assert [event.error.message for event in restarts] == ["away"]
    # they may have been given back when it broke, and were done then all the same
    assert [one.job.args["n"] for one in settled if one.outcome == rj.Complete()] == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
@on_virtual_time
async def test_a_pipeline_that_breaks_goes_on_where_it_was(kind, caplog):
    caplog.set_level(logging.CRITICAL, logger="rxjobs.runner")
    breaks = [True]

    def break_once(item: Any) -> Any:
        if item.args["n"] == 7 and breaks.pop():
            breaks.append(False)
            raise RuntimeError("broken")
        return item

    done = list[int]()

    def on_settle(finished: Finished) -> None:
        if finished.outcome == rj.Complete():
            done.append(finished.job.args["n"])

    source = source_of(kind, range(20), numbered, on_settle=on_settle)
    async with runs(rj.pull(source, max_demand=4).pipe(ops.map(break_once), rj.complete(), rj.ack())) as observed:
        await asyncio.wait_for(observed.running.wait(), 100)
    assert sorted(done) == list(range(20))


@pytest.mark.parametrize("way", ["stopped", "killed", "taken from", "broken for good"])
@on_virtual_time
async def test_the_async_iterator_is_closed_when_the_stream_is_left(way, caplog):
    caplog.set_level(logging.CRITICAL + 1, logger="rxjobs.runner")
    items = Counted(1000)
    stream = rj.pull(rj.AsyncIterableSource(items.slowly(1), numbered), max_demand=10).pipe(rj.complete(), rj.ack())
    match way:
        case "taken from":
            await stream.pipe(ops.take(3), ops.to_future())
        case "broken for good":

            def fail(_: Any) -> None:
                raise RuntimeError("broken")

            async with runs(stream.pipe(ops.do_action(fail)), max_restarts=1) as observed:
                with pytest.raises(rj.PipelineBroken):
                    await observed.running.wait()
        case _:
            async with runs(stream, grace=10 if way == "stopped" else 0):
                await asyncio.sleep(3.5)
    await asyncio.sleep(0.1)
    taken = items.taken
    assert items.is_closed
    await asyncio.sleep(10)
    assert items.taken == taken > 0


@on_virtual_time
async def test_it_is_closed_also_while_no_item_is_waited_for():
    async def long(job: rj.Job) -> None:
        await asyncio.sleep(100)

    items = Counted(1000)
    source = rj.AsyncIterableSource(items.slowly(0), numbered)
    async with runs(rj.pull(source, max_demand=1).pipe(rj.tap(long), rj.complete(), rj.ack()), grace=0):
        await asyncio.sleep(1)
        assert (items.taken, items.is_closed) == (1, False)
    await asyncio.sleep(0.1)
    assert items.is_closed


@on_virtual_time
async def test_a_generator_is_closed_when_the_stream_is_left():
    items = Counted(1000)
    source = rj.IterableSource(iter(items), numbered)
    await rj.pull(source, max_demand=10).pipe(rj.complete(), rj.ack(), ops.take(3), ops.to_future())
    await asyncio.sleep(0.1)
    assert items.is_closed


@pytest.mark.parametrize("kind", KINDS)
@on_virtual_time
async def test_a_job_that_is_to_run_later_is_given_later(kind):
    definition = job_type(greet)
    due = datetime.now(UTC) + timedelta(hours=1)
    items = [
        definition.options(delay=30).new("Ada"),
        definition.new("Grace"),
        definition.options(scheduled_at=due).new("Joan"),
    ]
    source = source_of(kind, items, definition)
    names, loop = list[Any](), asyncio.get_running_loop()
    pipeline = rj.pull(source, max_demand=5).pipe(
        rj.tap(lambda job: names.append((job.args["name"], round(loop.time() / 10)))), rj.complete(), rj.ack()
    )
    async with runs(pipeline) as observed:
        await asyncio.wait_for(observed.running.wait(), 5000)
    assert names == [("Grace", 0), ("Ada", 3), ("Joan", 360)]


@pytest.mark.parametrize("kind", KINDS)
@on_virtual_time
async def test_while_too_many_wait_to_come_back_nothing_more_is_read(kind, monkeypatch):
    monkeypatch.setattr(iterable, "MOST_WAITING", 20)
    items = Counted(1000)
    source = source_of(kind, items, numbered)
    pipeline = rj.pull(source, max_demand=5).pipe(rj.filter(lambda job: job.attempt > 3, rj.Retry(100)), rj.complete(), rj.ack())
    async with runs(pipeline):
        await asyncio.sleep(99)
        assert items.taken <= 25
        await asyncio.sleep(3 * 100)
        assert items.taken > 25


@pytest.mark.parametrize("kind", KINDS)
async def test_two_jobs_of_one_id_are_refused_while_the_first_is_not_done(kind):
    job = a_job()
    source = source_of(kind, [job, job])
    assert len(await source.fetch(5)) == 1
    with pytest.raises(ValueError, match=f"gave a second job with the id {job.id} before the first was done"):
        await source.fetch(5)


@on_virtual_time
async def test_several_sources_merged_keep_their_own_demand():
    """One is slow to be settled and holds what it may; that is no demand of the other's."""
    few, many = Watched(rj.IterableSource(range(50), numbered), 3), Watched(rj.IterableSource(range(50), numbered), 20)
    held = {few: list[int](), many: list[int]()}

    async def work(job: rj.Job) -> None:
        held[few].append(few._held)
        held[many].append(many._held)
        await asyncio.sleep(1)

    streams = rx.merge(rj.pull(few, max_demand=3), rj.pull(many, max_demand=20))
    async with runs(streams.pipe(rj.tap(work, concurrency=100), rj.complete(), rj.ack())) as observed:
        await asyncio.wait_for(observed.running.wait(), 1000)
    for source in (few, many):
        source.hold_to_the_laws()
        assert len(source.settled) == 50
    assert (few.most_held, many.most_held) == (3, 20)
    observed.hold_to_the_laws()
