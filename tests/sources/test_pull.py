"""The demand rule, as a source sees it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import reactivex as rx
from reactivex import operators as ops
from reactivex.subject import Subject

import rxjobs as rj
from rxjobs.demand import settle
from rxjobs.events import JobDropped, PipelineStopped
from rxjobs.source import Control
from rxjobs.testing import MemorySource, a_job
from rxjobs.testing.watched import Watched, runs
from tests.virtual import on_virtual_time


def jobs(count: int, **fields: Any) -> list[rj.Job]:
    return [a_job(args={"n": n}, **fields) for n in range(count)]


def complete(*held: rj.Job) -> None:
    for job in held:
        settle(rj.Finished(job, rj.Complete()))


async def moment() -> None:
    await asyncio.sleep(0.001)


class SlowSource(MemorySource):
    """A source that takes a second to answer."""

    async def fetch(self, n: int) -> list[rj.Job]:
        taken = await super().fetch(n)
        await asyncio.sleep(1)
        return taken


class Broken(MemorySource):
    """A source that does as it is told instead of answering."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        super().__init__()
        self.answer = answer

    async def fetch(self, n: int) -> list[rj.Job]:
        self.asked.append(n)
        return self.answer()


class TooMany(MemorySource):
    """A source that gives two more than it was asked for."""

    async def fetch(self, n: int) -> list[rj.Job]:
        return await super().fetch(n + 2)


@on_virtual_time
async def test_it_asks_for_as_much_as_there_is_room_for_when_it_is_subscribed():
    source = MemorySource()
    rj.pull(source, max_demand=10).subscribe()
    await moment()
    assert source.asked == [10]


@on_virtual_time
async def test_by_default_it_asks_again_when_no_more_than_half_are_held():
    source, held = MemorySource(jobs(30)), list[rj.Job]()
    rj.pull(source, max_demand=10).subscribe(held.append)
    await moment()
    complete(*held[:4])
    await moment()
    assert source.asked == [10]
    complete(held[4])
    await moment()
    assert source.asked == [10, 5]


@pytest.mark.parametrize(("min_demand", "acked", "asked"), [(0, 9, []), (0, 10, [10]), (9, 1, [1]), (3, 6, []), (3, 7, [7])])
@on_virtual_time
async def test_it_asks_only_at_or_below_min_demand_and_for_no_more_than_is_free(min_demand, acked, asked):
    source, held = MemorySource(jobs(10)), list[rj.Job]()
    rj.pull(source, max_demand=10, min_demand=min_demand).subscribe(held.append)
    await moment()
    complete(*held[:acked])
    await moment()
    assert source.asked == [10, *asked]


@on_virtual_time
async def test_after_a_partial_answer_it_does_not_ask_until_a_wake():
    source, held = MemorySource(jobs(3)), list[rj.Job]()
    rj.pull(source, max_demand=10).subscribe(held.append)
    await asyncio.sleep(10_000)
    assert source.asked == [10]
    source.push(*jobs(1))
    await moment()
    assert source.asked == [10, 7]
    assert len(held) == 4


@on_virtual_time
async def test_a_wake_during_a_fetch_is_not_lost():
    source, held = SlowSource(), list[rj.Job]()
    rj.pull(source, max_demand=10).subscribe(held.append)
    await asyncio.sleep(0.5)
    source.push(*jobs(2))
    await asyncio.sleep(2)
    assert source.asked == [10, 10]
    assert len(held) == 2


@on_virtual_time
async def test_many_wakes_during_a_fetch_are_one_more_fetch():
    source = SlowSource()
    rj.pull(source, max_demand=10).subscribe()
    await asyncio.sleep(0.5)
    for _ in range(100):
        source.push()
    await asyncio.sleep(10)
    assert source.asked == [10, 10]


class Herd(MemorySource):
    """A source that hears of jobs which others take."""

    def hear(self) -> None:
        self._wakes.on_next("mail")


@on_virtual_time
async def test_who_was_woken_in_vain_asks_for_further_wakes_at_most_fifty_times_a_second_and_forgets_none():
    source, held = Herd(), list[rj.Job]()
    rj.pull(source, max_demand=10).subscribe(held.append)
    await moment()
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(1000):
        source.hear()
        await moment()
    seconds = loop.time() - began
    assert 40 * seconds < len(source.asked) < 50 * seconds + 3
    await asyncio.sleep(1)
    before = len(source.asked)
    source.hear()
    await moment()
    source.push(*jobs(1))
    await moment()
    assert (len(source.asked), held) == (before + 1, [])
    await asyncio.sleep(0.02)
    assert (len(source.asked), len(held)) == (before + 2, 1)


@on_virtual_time
async def test_who_was_woken_and_found_jobs_asks_at_the_next_wake_at_once():
    source, held = Herd(), list[rj.Job]()
    rj.pull(source, max_demand=100).subscribe(held.append)
    for count in range(1, 40):
        await moment()
        source.push(*jobs(1))
        await moment()
        assert len(held) == count


@on_virtual_time
async def test_a_wake_that_finds_no_room_is_remembered_until_there_is_some():
    source, held = MemorySource(jobs(10)), list[rj.Job]()
    rj.pull(source, max_demand=10).subscribe(held.append)
    await moment()
    source.push(*jobs(1))
    await moment()
    assert source.asked == [10]
    complete(*held[:5])
    await moment()
    assert source.asked == [10, 5]
    assert len(held) == 11


@on_virtual_time
async def test_demand_that_rises_past_the_mark_asks_once_more_even_of_a_source_that_had_nothing_left():
    source, held = MemorySource(jobs(8)), list[rj.Job]()
    rj.pull(source, max_demand=10).subscribe(held.append)
    await moment()
    for job in held[:3]:
        complete(job)
        await moment()
    assert source.asked == [10, 5]
    for job in held[3:]:
        complete(job)
        await moment()
    assert source.asked == [10, 5]


@on_virtual_time
async def test_it_asks_one_at_a_time():
    source, held = Watched(SlowSource(jobs(100)), 10), list[rj.Job]()

    def take(job: rj.Job) -> None:
        held.append(job)
        asyncio.get_running_loop().call_later(0.01 * len(held), complete, job)

    rj.pull(source, max_demand=10).subscribe(take)
    await asyncio.sleep(100)
    source.hold_to_the_laws()
    assert len(source.settled) == 100


@on_virtual_time
async def test_jobs_come_in_the_order_in_which_they_were_fetched():
    source, held = MemorySource(jobs(25)), list[rj.Job]()

    def take(job: rj.Job) -> None:
        held.append(job)
        complete(job)

    rj.pull(source, max_demand=4).subscribe(take)
    await asyncio.sleep(1)
    assert [job.args["n"] for job in held] == list(range(25))


def _raise(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (lambda: _raise(ValueError("no answer")), ValueError),
        (lambda: _raise(asyncio.CancelledError()), RuntimeError),
        (lambda: _raise(SystemExit(3)), RuntimeError),
        (lambda: None, TypeError),
        (lambda: ["no job"], TypeError),
    ],
    ids=["raises", "is cancelled by itself", "exits", "gives nothing", "gives no jobs"],
)
@on_virtual_time
async def test_a_fetch_that(answer, kind):
    """… is one on_error, and nothing after it."""
    source, errors, held = Broken(answer), list[Exception](), list[rj.Job]()
    rj.pull(source, max_demand=10).subscribe(held.append, errors.append)
    await moment()
    source.push(*jobs(1))
    await asyncio.sleep(100)
    assert [type(error) for error in errors] == [kind]
    assert source.asked == [10]
    assert held == []


@on_virtual_time
async def test_a_fetch_that_raises_before_it_is_awaited_is_one_on_error():
    class Eager(MemorySource):
        def fetch(self, n: int) -> Any:
            raise ValueError("at once")

    errors = list[Exception]()
    rj.pull(Eager(), max_demand=10).subscribe(on_error=errors.append)
    await asyncio.sleep(100)
    assert [str(error) for error in errors] == ["at once"]


@on_virtual_time
async def test_a_wake_during_a_fetch_that_fails_starts_no_other():
    class Failing(SlowSource):
        async def fetch(self, n: int) -> list[rj.Job]:
            await super().fetch(n)
            raise ValueError("no answer")

    source, errors = Failing(), list[Exception]()
    rj.pull(source, max_demand=10).subscribe(on_error=errors.append)
    await asyncio.sleep(0.5)
    source.push()
    await asyncio.sleep(100)
    assert source.asked == [10]
    assert len(errors) == 1


@on_virtual_time
async def test_more_jobs_than_it_asked_for_are_released():
    source, held = TooMany(jobs(12)), list[rj.Job]()
    rj.pull(source, max_demand=10).subscribe(held.append)
    await moment()
    assert len(held) == 10
    assert [(one.job.args["n"], type(one.outcome)) for one in source.settled] == [(10, rj.Release), (11, rj.Release)]


@on_virtual_time
async def test_an_answer_that_comes_after_it_was_disposed_is_given_back():
    source, held = SlowSource(jobs(3)), list[rj.Job]()
    subscription = rj.pull(source, max_demand=10).subscribe(held.append)
    await asyncio.sleep(0.5)
    subscription.dispose()
    await asyncio.sleep(10)
    assert held == []
    assert [type(one.outcome) for one in source.settled] == [rj.Release] * 3


@on_virtual_time
async def test_an_answer_that_comes_after_stop_is_given_back_before_stop_returns():
    source = SlowSource(jobs(3))
    async with runs(rj.pull(source, max_demand=10).pipe(rj.complete(), rj.ack())):
        await asyncio.sleep(0.5)
    assert [type(one.outcome) for one in source.settled] == [rj.Release] * 3


@on_virtual_time
async def test_a_source_that_does_not_answer_does_not_hold_up_stop():
    class Silent(MemorySource):
        async def fetch(self, n: int) -> list[rj.Job]:
            await asyncio.sleep(3600)
            return []

    loop = asyncio.get_running_loop()
    async with runs(rj.pull(Silent(), max_demand=10).pipe(rj.complete(), rj.ack()), grace=60):
        await asyncio.sleep(1)
        began = loop.time()
    assert loop.time() - began < 5


@on_virtual_time
async def test_a_source_whose_wakes_complete_is_asked_until_it_has_nothing_more():
    source, held, ended = MemorySource(jobs(25)), list[rj.Job](), list[bool]()
    source.close()
    rj.pull(source, max_demand=10).pipe(rj.complete(), rj.ack()).subscribe(
        lambda one: held.append(one.job), on_completed=lambda: ended.append(True)
    )
    await asyncio.sleep(1)
    assert len(held) == 25
    assert ended == [True]


@on_virtual_time
async def test_an_error_of_the_wakes_is_one_on_error():
    class Deaf(MemorySource):
        @property
        def wakes(self) -> rx.Observable[object]:
            return rx.throw(ValueError("deaf"))

    errors = list[Exception]()
    rj.pull(Deaf(), max_demand=10).subscribe(on_error=errors.append)
    await moment()
    assert [str(error) for error in errors] == ["deaf"]


async def test_a_wake_may_come_from_any_thread():
    source, came = MemorySource(), asyncio.Event()
    threads = list[int]()

    def see(job: rj.Job) -> None:
        threads.append(threading.get_ident())
        came.set()

    subscription = rj.pull(source, max_demand=10).subscribe(see)
    await asyncio.to_thread(source.push, *jobs(1))
    await asyncio.wait_for(came.wait(), 10)
    assert threads == [threading.get_ident()]
    subscription.dispose()


def test_outside_of_an_event_loop_it_says_what_to_do():
    with pytest.raises(rj.NotOpen, match=r"outside of an event loop; run it with app\.run"):
        rj.pull(MemorySource(), max_demand=10).subscribe()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_demand": 0}, "max_demand is a whole number of at least 1, not 0"),
        ({"max_demand": True}, "not True"),
        ({"max_demand": 2.5}, "not 2.5"),
        ({"max_demand": "10"}, "not '10'"),
        ({"max_demand": 10, "min_demand": 10}, "min_demand is a whole number from 0 to max_demand - 1 = 9, not 10"),
        ({"max_demand": 10, "min_demand": -1}, "not -1"),
        ({"max_demand": 10, "min_demand": False}, "not False"),
    ],
)
def test_demand_that_cannot_be_is_refused_where_it_enters(options, message):
    with pytest.raises(rj.InvalidOption, match=message):
        rj.pull(MemorySource(), **options)


@pytest.mark.parametrize(
    ("operator", "passed"),
    [
        (ops.filter(lambda job: job.args["n"] not in (1, 3)), [0, 2, 4]),
        (ops.skip(2), [2, 3, 4]),
        (ops.take(2), [0, 1]),
        (ops.take_while(lambda job: job.args["n"] < 3), [0, 1, 2]),
        (ops.distinct_until_changed(lambda job: job.args["n"] // 2), [0, 2, 4]),
    ],
    ids=["filter", "skip", "take", "take_while", "distinct_until_changed"],
)
@on_virtual_time
async def test_a_job_that_is_dropped_by(operator, passed, caplog):
    """… is released after a while, with a warning that names the queue and the job."""
    source = MemorySource(jobs(5, queue="mail"))
    with caplog.at_level(logging.WARNING, "rxjobs.demand"):
        async with runs(rj.pull(source, max_demand=10).pipe(operator, rj.complete(), rj.ack())) as observed:
            await asyncio.sleep(1)
            settled = list(source.settled)
    dropped = {one.job.id for one in settled if isinstance(one.outcome, rj.Release)}
    assert [one.job.args["n"] for one in settled if isinstance(one.outcome, rj.Complete)] == passed
    assert len(dropped) == 5 - len(passed)
    assert all(one.outcome.delay > 0 for one in settled if isinstance(one.outcome, rj.Release))
    assert {event.job.id for event in observed.events if isinstance(event, JobDropped)} == dropped
    for id_ in dropped:
        assert f"job {id_} (a_job) of queue mail was dropped" in caplog.text


@on_virtual_time
async def test_take_ends_the_pipeline_and_nothing_more_is_fetched():
    source = MemorySource(jobs(100))
    async with runs(rj.pull(source, max_demand=10).pipe(ops.take(2), rj.complete(), rj.ack())) as observed:
        await asyncio.wait_for(observed.running.wait(), 10)
        source.push(*jobs(1))
        await asyncio.sleep(100)
        assert source.asked == [10]
        assert observed.running.held_ids == set()
    assert [type(event) for event in observed.events].count(PipelineStopped) == 1


@on_virtual_time
async def test_a_job_that_an_operator_keeps_for_a_while_is_not_dropped():
    source = MemorySource(jobs(5))
    async with runs(rj.pull(source, max_demand=10).pipe(ops.delay(30), rj.complete(), rj.ack())):
        await asyncio.sleep(60)
    assert [type(one.outcome) for one in source.settled] == [rj.Complete] * 5


@on_virtual_time
async def test_what_an_operator_still_keeps_when_the_pipeline_is_killed_is_released():
    source = MemorySource(jobs(5))
    async with runs(rj.pull(source, max_demand=10).pipe(ops.delay(30), rj.complete(), rj.ack()), grace=1) as observed:
        await asyncio.sleep(1)
    assert [type(one.outcome) for one in source.settled] == [rj.Release] * 5
    assert not any(isinstance(event, JobDropped) for event in observed.events)


@on_virtual_time
async def test_what_is_dropped_after_it_is_finished_is_settled_as_it_ended():
    source = MemorySource(jobs(4))
    stream = rj.pull(source, max_demand=10).pipe(
        rj.filter(lambda job: job.args["n"] % 2 == 0, otherwise=rj.Discard("odd")),
        rj.complete(),
        ops.filter(lambda finished: isinstance(finished.outcome, rj.Discard)),
        rj.ack(),
    )
    async with runs(stream):
        await asyncio.sleep(1)
        assert {one.job.args["n"]: type(one.outcome) for one in source.settled} == {
            0: rj.Complete, 1: rj.Discard, 2: rj.Complete, 3: rj.Discard,
        }  # fmt: skip


@on_virtual_time
async def test_on_virtual_time_a_busy_machine_does_not_change_when_jobs_are_handed_on():
    order: list[Any] = []

    def take(job: rj.Job) -> None:
        asyncio.get_running_loop().call_soon(order.append, "another's turn")
        time.sleep(0.003)  # longer than jobs are handed on in one go, were that real time
        order.append(job.args["n"])

    async with runs(rj.pull(MemorySource(jobs(3)), max_demand=3).pipe(ops.do_action(take), rj.complete(), rj.ack())):
        await asyncio.sleep(1)
    assert order == [0, 1, 2, *["another's turn"] * 3]


@on_virtual_time
async def test_sources_that_are_merged_keep_each_its_own_demand():
    many, few = Watched(MemorySource(jobs(100)), 20), Watched(MemorySource(jobs(100)), 2)
    stream = rx.merge(rj.pull(many, max_demand=20), rj.pull(few, max_demand=2)).pipe(rj.complete(), rj.ack())
    async with runs(stream):
        await asyncio.sleep(1)
    for source in (many, few):
        source.hold_to_the_laws()
        assert len(source.settled) == 100
    assert many.most_held == 20
    assert few.most_held == 2


@on_virtual_time
async def test_a_pull_that_is_used_twice_in_a_pipeline_starves_neither_branch():
    source = Watched(MemorySource(jobs(100)), 4)
    pulled = rj.pull(source, max_demand=4)
    by = {"left": list[rj.Finished](), "right": list[rj.Finished]()}
    left = pulled.pipe(rj.complete(), rj.ack(), ops.do_action(by["left"].append))
    right = pulled.pipe(rj.complete(), rj.ack(), ops.do_action(by["right"].append), ops.take(3))
    async with runs(rx.merge(left, right)):
        await asyncio.sleep(1)
        # what the branch that ended had not begun is given back, and comes again
        assert sum(one.outcome == rj.Complete() for one in source.settled) == 100
    source.hold_to_the_laws()
    assert by["left"]
    assert len(by["right"]) == 3


class Steered(MemorySource):
    """A source that is told at run time how its jobs are to be taken."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.controls: Subject[Control] = Subject()

    def pause(self) -> None:
        self.controls.on_next(Control(is_paused=True))

    def scale(self, max_demand: int | None) -> None:
        self.controls.on_next(Control(max_demand=max_demand))


@on_virtual_time
async def test_while_it_is_paused_it_does_not_ask_and_when_it_goes_on_it_asks_at_once():
    source, held = Steered(jobs(20)), list[rj.Job]()
    rj.pull(source, max_demand=10).subscribe(held.append)
    await moment()
    source.pause()
    complete(*held)
    source.push()
    await asyncio.sleep(1000)
    assert source.asked == [10]
    source.controls.on_next(Control())
    await moment()
    assert source.asked == [10, 10]
    assert len(held) == 20


@on_virtual_time
async def test_what_is_held_when_it_is_paused_and_has_not_begun_is_released_and_a_stage_that_is_at_it_may_end():
    source = Steered(jobs(10))
    begun, may_end = list[int](), asyncio.Event()

    async def look_up(job: rj.Job) -> None:
        begun.append(job.id)
        await may_end.wait()

    stream = rj.pull(source, max_demand=10).pipe(
        ops.delay(1), rj.filter(lambda job: True), rj.enrich(look_up, concurrency=2), rj.complete(), rj.ack()
    )
    async with runs(stream) as observed:
        await asyncio.sleep(2)
        source.pause()
        await moment()
        assert len(begun) == 2
        assert [type(one.outcome) for one in source.settled] == [rj.Release] * 8
        may_end.set()
        await moment()
        assert observed.running.held_ids == set()
        source.controls.on_next(Control())
        await asyncio.sleep(2)
    ends = Counter(type(one.outcome) for one in source.settled)
    assert ends == {rj.Complete: 10, rj.Release: 10}
    assert not any(isinstance(event, JobDropped) for event in observed.events)


@on_virtual_time
async def test_an_answer_that_comes_when_it_is_paused_is_given_back():
    class Slow(Steered, SlowSource): ...

    source, held = Slow(jobs(3)), list[rj.Job]()
    rj.pull(source, max_demand=10).subscribe(held.append)
    await asyncio.sleep(0.5)
    source.pause()
    await asyncio.sleep(10)
    assert held == []
    assert [type(one.outcome) for one in source.settled] == [rj.Release] * 3
    source.controls.on_next(Control())
    await asyncio.sleep(10)
    assert len(held) == 3


@on_virtual_time
async def test_it_holds_as_many_as_it_is_told_to_at_run_time_and_as_is_declared_when_it_is_told_so():
    source, held = Steered(jobs(100)), list[rj.Job]()
    rj.pull(source, max_demand=10).subscribe(held.append)
    await moment()
    source.scale(50)
    await moment()
    assert (source.asked, len(held)) == ([10, 40], 50)
    source.scale(4)
    complete(*held[:47])
    await moment()
    assert source.asked == [10, 40]  # three are held, and that is more than half of four
    complete(held[47])
    await moment()
    assert source.asked == [10, 40, 2]
    source.scale(None)
    await moment()
    assert source.asked == [10, 40, 2, 6]


@pytest.mark.parametrize(("told", "acked", "asked"), [(20, 3, [13]), (4, 7, [1]), (1, 10, [1])])
@on_virtual_time
async def test_the_least_that_was_declared_holds_as_far_as_it_can(told, acked, asked):
    source, held = Steered(jobs(10)), list[rj.Job]()
    rj.pull(source, max_demand=10, min_demand=7).subscribe(held.append)
    await moment()
    source.scale(told)
    complete(*held[: acked - 1])
    await moment()
    before = list(source.asked)
    complete(held[acked - 1])
    await moment()
    assert before == [10]
    assert source.asked == [10, *asked]


@on_virtual_time
async def test_an_error_of_what_it_is_told_is_one_on_error():
    source, errors = Steered(), list[Exception]()
    rj.pull(source, max_demand=10).subscribe(on_error=errors.append)
    source.controls.on_error(ValueError("deaf"))
    await moment()
    assert [str(error) for error in errors] == ["deaf"]


@on_virtual_time
async def test_while_all_that_is_held_is_only_written_down_half_is_asked_for_so_that_claims_and_acks_go_side_by_side():
    class SlowlyWritten(MemorySource):
        async def fetch(self, n: int) -> list[rj.Job]:
            await asyncio.sleep(1)
            return await super().fetch(n)

        async def settle(self, finished: list[rj.Finished]) -> None:
            await asyncio.sleep(1)
            await super().settle(finished)

    source = Watched(SlowlyWritten(jobs(200)), 20)
    async with runs(rj.pull(source, max_demand=20).pipe(rj.complete(), rj.ack())):
        await asyncio.sleep(60)
    source.hold_to_the_laws()
    assert source.source.asked[:8] == [20, 10, 10, 10, 10, 10, 10, 10]


@pytest.mark.parametrize("source", [42, None, rx.of(1), ["a job"]], ids=["number", "nothing", "Observable", "list"])
def test_what_is_no_source_is_refused_where_it_is_written(source):
    with pytest.raises(rj.InvalidOption, match="takes a source of jobs, which has wakes, fetch and settle, not "):
        rj.pull(source, max_demand=1)
