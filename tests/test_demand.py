"""What is held, and the writing down of how it ended."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import threading

import pytest

import rxjobs as rj
from rxjobs.aside import Unwritten
from rxjobs.awaiting import LoopScheduler
from rxjobs.demand import Demand, ended, let_go, now, settle
from rxjobs.events import Event, JobDropped, JobsAcked
from rxjobs.ledger import Ledger
from rxjobs.outcome import Finished
from rxjobs.testing import MemorySource, a_job
from tests.virtual import on_virtual_time


class Bench:
    """A ledger, what it told, and whether a pull listens to it."""

    def __init__(self, source: MemorySource, max_demand: int = 10, *, listening: bool = True) -> None:
        self.events = list[Event]()
        self.demand = Demand(max_demand)
        self.ledger = Ledger(source, self.demand, LoopScheduler(asyncio.get_running_loop()), self.events.append)
        self.rooms = 0
        if listening:
            self.ledger.join(self)

    takes_more = False
    is_handing_on = False

    def room(self, must_ask: bool) -> None:
        self.rooms += 1

    def hold(self, count: int = 1) -> list[rj.Job]:
        return [self.ledger.hold(a_job(attempt=1, queue="mail"), now()) for _ in range(count)]


class Failing(MemorySource):
    """A source that cannot write for a while."""

    def __init__(self, times: int, error: BaseException | None = None) -> None:
        super().__init__()
        self.left = times
        self.tried = list[tuple[float, int]]()
        self.error = error or OSError("no disk")

    async def settle(self, finished: list[Finished]) -> None:
        self.tried.append((asyncio.get_running_loop().time(), len(finished)))
        if self.left:
            self.left -= 1
            raise self.error
        await super().settle(finished)


class Slow(MemorySource):
    """A source that takes a second to write."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = list[int]()

    async def settle(self, finished: list[Finished]) -> None:
        self.batches.append(len(finished))
        await asyncio.sleep(1)
        await super().settle(finished)


def complete(*jobs: rj.Job) -> list[bool]:
    return [settle(Finished(job, rj.Complete())) for job in jobs]


@pytest.mark.parametrize(("held", "free"), [(0, 10), (5, 5), (6, 0), (10, 0), (12, 0)])
def test_nothing_is_free_while_more_than_min_demand_are_held(held, free):
    demand = Demand(10)
    demand.held = held
    assert demand.free == free


@on_virtual_time
async def test_a_place_is_given_back_once_the_outcome_is_written_and_not_before():
    bench = Bench(Slow())
    (job,) = bench.hold()
    complete(job)
    await asyncio.sleep(0.5)
    assert (bench.demand.held, bench.rooms, bench.ledger.held_ids) == (1, 0, {job.id})
    await asyncio.sleep(1)
    assert (bench.demand.held, bench.rooms, bench.ledger.held_ids) == (0, 1, set())
    assert bench.ledger.is_idle


@on_virtual_time
async def test_what_gathers_during_one_write_goes_into_the_next_as_far_as_it_makes_room_to_ask_for_more():
    source = Slow()
    bench = Bench(source)
    jobs = bench.hold(9)
    complete(jobs[0])
    for job in jobs[1:]:
        await asyncio.sleep(0.1)
        complete(job)
    await asyncio.sleep(3)
    assert source.batches == [1, 5, 3]
    assert bench.demand.worth_asking == 5


@on_virtual_time
async def test_a_ledger_that_is_closed_waits_for_no_write_and_begins_none(caplog):
    source = Slow()
    bench = Bench(source)
    first, second = bench.hold(2)
    complete(first)
    await asyncio.sleep(0.5)
    bench.ledger.close()
    complete(second)
    await asyncio.sleep(60)
    assert (source.batches, source.settled) == ([1], [])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"job {second.id} (a_job) ended after its app" in caplog.text
    assert asyncio.all_tasks() == {asyncio.current_task()}


@on_virtual_time
async def test_a_job_is_settled_once():
    source = MemorySource()
    bench = Bench(source)
    (job,) = bench.hold()
    assert complete(job, job, job.assign({"a": 1})) == [True, False, False]
    let_go(job)
    await asyncio.sleep(1)
    assert len(source.settled) == 1


def test_a_job_that_takes_no_place_is_settled_by_nobody():
    assert complete(a_job()) == [False]


@on_virtual_time
async def test_outcomes_are_kept_when_they_cannot_be_written_and_are_written_later(caplog):
    source = Failing(3)
    bench = Bench(source)
    acked = list[Finished]()
    first, second = bench.hold(2)
    settle(Finished(first, rj.Complete()), acked.append)
    await asyncio.sleep(0.05)
    settle(Finished(second, rj.Cancel()), acked.append)
    await asyncio.sleep(0.6)
    assert (source.settled, acked, bench.demand.held) == ([], [], 2)
    await asyncio.sleep(0.2)
    assert [type(one.outcome) for one in source.settled] == [rj.Complete, rj.Cancel]
    assert [one.job.id for one in acked] == [first.id, second.id]
    assert (bench.demand.held, bench.rooms) == (0, 1)
    assert [(round(at, 3), count) for at, count in source.tried] == [(0, 1), (0.1, 2), (0.3, 2), (0.7, 2)]
    assert "1 outcomes could not be written down, next try in 0.1 s:" in caplog.text
    assert "no disk" in caplog.text


@on_virtual_time
async def test_tries_to_write_come_at_most_half_a_minute_apart():
    source = Failing(30)
    bench = Bench(source)
    complete(*bench.hold())
    await asyncio.sleep(3600)
    times = [at for at, _ in source.tried]
    assert max(later - before for before, later in itertools.pairwise(times)) == pytest.approx(30)
    assert len(source.settled) == 1


class Cramped(MemorySource):
    """A source that has no room for some jobs until there is."""

    queue = "mail"

    def __init__(self) -> None:
        super().__init__()
        self.too_large = set[int]()
        self.tried = list[float]()

    async def settle(self, finished: list[Finished]) -> None:
        large = {one.job.id for one in finished} & self.too_large
        await super().settle([one for one in finished if one.job.id not in large])
        if large:
            self.tried.append(asyncio.get_running_loop().time())
            raise Unwritten(large, OSError("no disk"))


@on_virtual_time
async def test_an_outcome_that_there_is_no_room_for_is_kept_and_holds_up_none_behind_it(caplog):
    source = Cramped()
    bench = Bench(source)
    acked = list[Finished]()
    large, *small = bench.hold(4)
    source.too_large = {large.id}
    for job in (large, small[0]):
        settle(Finished(job, rj.Complete()), acked.append)
    await asyncio.sleep(0.05)
    for job in small[1:]:
        settle(Finished(job, rj.Complete()), acked.append)
    await asyncio.sleep(10)
    assert [one.job.id for one in acked] == [job.id for job in small]
    assert (bench.demand.held, bench.ledger.pending, bench.ledger.held_ids) == (1, 1, {large.id})
    assert source.tried == pytest.approx([0, 0.1, 0.3, 0.7, 1.5, 3.1, 5.1, 7.1, 9.1])
    assert caplog.text.count("there is no room for 1 outcomes") == 4
    source.too_large = set()
    await asyncio.sleep(2)
    assert [one.job.id for one in acked] == [*(job.id for job in small), large.id]
    assert (bench.demand.held, bench.ledger.pending) == (0, 0)
    assert caplog.text.count("there is room again") == 1
    told = [(len(event.jobs), event.error is None) for event in bench.events if isinstance(event, JobsAcked)]
    assert told == [(1, False), (1, True), (2, True), *[(1, False)] * 8, (1, True)]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(1)], ids=repr)
@on_virtual_time
async def test_whatever_a_source_raises_when_it_writes_it_is_asked_again(error):
    source = Failing(1, error)
    bench = Bench(source)
    complete(*bench.hold())
    await asyncio.sleep(1)
    assert len(source.settled) == 1


@on_virtual_time
async def test_a_source_that_raises_before_it_is_awaited_is_asked_again():
    class Eager(MemorySource):
        left = 1

        def settle(self, finished: list[Finished]):  # type: ignore[override]
            if self.left:
                self.left -= 1
                raise ValueError("at once")
            return super().settle(finished)

    source = Eager()
    complete(*Bench(source).hold())
    await asyncio.sleep(1)
    assert len(source.settled) == 1


@on_virtual_time
async def test_a_job_that_is_let_go_is_released_with_a_warning_that_names_queue_and_job(caplog):
    source = MemorySource()
    bench = Bench(source)
    jobs = bench.hold(1)
    id_ = jobs[0].id
    jobs.clear()
    await asyncio.sleep(0.1)
    assert [one.outcome for one in source.settled] == [rj.Release(5.0, "an operator of its pipeline dropped it")]
    assert f"job {id_} (a_job) of queue mail was dropped by an operator of its pipeline" in caplog.text
    assert "use rj.filter(..., otherwise=outcome)" in caplog.text
    assert [(type(event), event.job.id) for event in bench.events] == [(JobDropped, id_)]


@on_virtual_time
async def test_while_any_copy_of_a_job_is_kept_it_is_not_let_go():
    source = MemorySource()
    bench = Bench(source)
    jobs = bench.hold(1)
    copies = [jobs[0].assign({"n": 1}), jobs[0].assign({"n": 2})]
    jobs.clear()
    copies.pop()
    await asyncio.sleep(0.1)
    assert source.settled == []
    copies.pop()
    await asyncio.sleep(0.1)
    assert len(source.settled) == 1


@on_virtual_time
async def test_what_is_let_go_when_its_pull_has_ended_is_released_at_once_and_in_silence(caplog):
    source = MemorySource()
    bench = Bench(source, listening=False)
    jobs = bench.hold(1)
    jobs.clear()
    await asyncio.sleep(0.1)
    assert [one.outcome for one in source.settled] == [rj.Release(reason="its pipeline was stopped")]
    assert caplog.records == []
    assert bench.events == []


@on_virtual_time
async def test_what_is_let_go_after_it_has_ended_is_settled_as_it_ended():
    source = MemorySource()
    bench = Bench(source)
    jobs = bench.hold(1)
    finished = ended(jobs.pop(), rj.Discard("no"))
    assert finished.outcome == rj.Discard("no")
    del finished
    await asyncio.sleep(0.1)
    assert [one.outcome for one in source.settled] == [rj.Discard("no")]
    assert bench.demand.held == 0


async def test_a_job_may_be_let_go_on_any_thread():
    wrote_on, written = list[int](), asyncio.Event()

    class Noting(MemorySource):
        async def settle(self, finished: list[Finished]) -> None:
            wrote_on.append(threading.get_ident())
            written.set()

    jobs = Bench(Noting()).hold(1)
    await asyncio.to_thread(jobs.clear)
    await asyncio.wait_for(written.wait(), 10)
    assert wrote_on == [threading.get_ident()]


async def test_a_job_in_a_circle_is_released_by_the_garbage_collector():
    source = MemorySource()
    bench = Bench(source)
    circle: list[object] = [*bench.hold(1)]
    circle.append(circle)
    del circle
    gc.collect()
    await asyncio.sleep(0.01)
    assert len(source.settled) == 1


def test_a_job_that_is_let_go_after_its_loop_was_closed_harms_nothing():
    async def main() -> list[rj.Job]:
        return Bench(MemorySource()).hold(3)

    jobs = asyncio.run(main())
    jobs.clear()
    gc.collect()


@on_virtual_time
async def test_what_was_never_held_is_given_back(caplog):
    source = MemorySource()
    bench = Bench(source)
    given = [a_job(attempt=1), a_job(attempt=1)]
    bench.ledger.give_back(given, "it came late")
    assert not bench.ledger.is_idle
    assert bench.ledger.held_ids == {job.id for job in given}
    await asyncio.sleep(0.1)
    assert [one.outcome for one in source.settled] == [rj.Release(reason="it came late")] * 2
    assert bench.ledger.is_idle
    with caplog.at_level(logging.WARNING):
        assert caplog.records == []
