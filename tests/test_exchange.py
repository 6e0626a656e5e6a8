"""Outcomes that are written down and jobs that are fetched in one transaction, as a pull sees it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest
import reactivex as rx
from reactivex import operators as ops

import rxjobs as rj
from rxjobs import ledger
from rxjobs.awaiting import LoopScheduler
from rxjobs.demand import Demand, now, settle
from rxjobs.ledger import Ledger
from rxjobs.outcome import Finished
from rxjobs.source import Control
from rxjobs.sources.pull import TURN
from rxjobs.testing import MemorySource, a_job
from rxjobs.testing.watched import runs
from tests.virtual import on_virtual_time
from tests.waiting import until


class Both(MemorySource):
    """A source that takes a second for whatever it is asked, and counts who has its jobs when that is done."""

    def __init__(self, count: int, max_demand: int = 10) -> None:
        super().__init__([a_job(args={"n": n}) for n in range(count)])
        self.max_demand = max_demand
        self.exchanges = list[tuple[int, int]]()
        self.on_their_way = self.most_on_their_way = self.out = self.most_out = 0
        self.willing = True
        self.fetch_seconds = self.exchange_seconds = 1.0
        self.fails: Exception | None = None
        self.control: rx.Subject[Control] = rx.Subject()

    @property
    def controls(self) -> rx.Observable[Control]:
        return self.control

    def may_exchange(self, finished: list[Finished]) -> bool:
        return self.willing

    async def exchange(self, finished: list[Finished], n: int) -> list[rj.Job]:
        self.exchanges.append((len(finished), n))
        self.on_their_way += 1
        self.most_on_their_way = max(self.most_on_their_way, self.on_their_way)
        try:
            await asyncio.sleep(self.exchange_seconds)
            if self.fails is not None:
                raise self.fails
            await self._settled(finished)
            return await self._fetched(n)
        finally:
            self.on_their_way -= 1

    async def fetch(self, n: int) -> list[rj.Job]:
        await asyncio.sleep(self.fetch_seconds)
        return await self._fetched(n)

    async def settle(self, finished: list[Finished]) -> None:
        await asyncio.sleep(1)
        await self._settled(finished)

    async def _fetched(self, n: int) -> list[rj.Job]:
        jobs = await super().fetch(n)
        self.out += len(jobs)
        self.most_out = max(self.most_out, self.out)
        assert self.out <= self.max_demand
        return jobs

    async def _settled(self, finished: list[Finished]) -> None:
        await super().settle(finished)
        self.out -= len(finished)

    def settled_once(self, count: int) -> bool:
        return Counter(one.job.args["n"] for one in self.settled) == dict.fromkeys(range(count), 1)


def pulled(source, *stages):
    return rj.pull(source, max_demand=source.max_demand).pipe(*stages, rj.complete(), rj.ack())


@on_virtual_time
async def test_a_place_goes_round_by_one_statement_and_two_are_on_their_way():
    source = Both(200)
    async with runs(pulled(source)) as observed:
        await asyncio.sleep(60)
        observed.never_broke()
    assert source.settled_once(200)
    assert source.asked[0] == 10  # the first jobs had nothing to come with
    assert source.exchanges[:20] == [(5, 5)] * 20
    assert (source.most_on_their_way, source.most_out) == (2, 10)
    assert source.out == 0


@on_virtual_time
async def test_jobs_come_with_outcomes_only_where_those_make_room_to_ask():
    """Of ten jobs nine run for long: one that ends leaves more than min_demand."""
    source, slow = Both(20), asyncio.Event()

    async def wait(job: rj.Job) -> dict[str, int]:
        if job.args["n"] in range(1, 10):
            await slow.wait()
        return {}

    async with runs(pulled(source, rj.enrich(wait, concurrency=10))):
        await asyncio.sleep(5)
        assert [one.job.args["n"] for one in source.settled] == [0]
        assert (source.exchanges, source.asked) == ([], [10])
        slow.set()
        await asyncio.sleep(20)
    assert source.settled_once(20)
    assert source.exchanges


@on_virtual_time
async def test_free_places_are_asked_for_too():
    source = Both(3)
    async with runs(pulled(source)):
        await asyncio.sleep(1.5)
        assert (source.asked, source.exchanges) == ([10], [])
        source.push(*[a_job(args={"n": n}) for n in range(3, 30)])
        await asyncio.sleep(30)
    assert source.settled_once(30)
    assert source.most_out == 10


@on_virtual_time
async def test_one_brings_no_more_than_half_of_what_is_held():
    """Else the one would bring nearly all and the other next to nothing, again and again."""
    source = Both(50)

    async def end_in_two_bursts(job: rj.Job) -> dict[str, int]:
        await asyncio.sleep(0.5 if job.args["n"] < 4 else 1.0)
        return {}

    async with runs(pulled(source, rj.enrich(end_in_two_bursts, concurrency=10))):
        await asyncio.sleep(60)
    assert source.settled_once(50)
    assert max(asked for _, asked in source.exchanges) == 5


async def test_what_is_handed_on_in_several_turns_is_written_down_in_one_where_it_ends_at_once(monkeypatch):
    """On real time: in virtual time no turn ends."""
    monkeypatch.setattr(ledger, "BURST_SECONDS", 60.0)  # on a busy machine it takes long
    source = Both(1000, max_demand=200)
    source.fetch_seconds = source.exchange_seconds = 0.001

    def take_longer_than_a_turn(job: rj.Job) -> rj.Job:
        end = time.perf_counter() + 3 * TURN / 100
        while time.perf_counter() < end:
            pass
        return job

    async with runs(pulled(source, ops.map(take_longer_than_a_turn))):
        await until(lambda: len(source.settled) == 1000)
    assert source.exchanges[:8] == [(100, 100)] * 8


@on_virtual_time
async def test_a_source_that_will_not_is_asked_and_told_apart():
    source = Both(50)
    source.willing = False
    async with runs(pulled(source)):
        await asyncio.sleep(60)
    assert source.settled_once(50)
    assert source.exchanges == []


@on_virtual_time
async def test_after_one_that_fails_both_are_done_apart_for_a_while():
    source = Both(100)
    async with runs(pulled(source)) as observed:
        await asyncio.sleep(2.5)
        source.fails = OSError("the connection is gone")
        await asyncio.sleep(10)
        failed = len(source.exchanges)
        source.fails = None
        await asyncio.sleep(60)
        observed.never_broke()
    assert source.settled_once(100)
    assert len(source.exchanges) > failed >= 2
    assert source.out == 0


@pytest.mark.parametrize("error", [ValueError("a value"), RuntimeError("whatever it is")])
@on_virtual_time
async def test_whatever_fails_nothing_is_lost(error):
    source = Both(60)
    source.fails = error
    async with runs(pulled(source)) as observed:
        await asyncio.sleep(100)
        observed.never_broke()
    assert source.settled_once(60)


@on_virtual_time
async def test_what_comes_when_its_queue_was_paused_goes_back():
    source = Both(100)
    async with runs(pulled(source)):
        await asyncio.sleep(2.5)
        assert source.on_their_way == 2
        source.control.on_next(Control(is_paused=True))
        await asyncio.sleep(5)
        assert source.out == 0
        exchanges, released = len(source.exchanges), [one for one in source.settled if isinstance(one.outcome, rj.Release)]
        assert len(released) == 10
        await asyncio.sleep(20)
        assert len(source.exchanges) == exchanges
        source.control.on_next(Control())
        await asyncio.sleep(60)
    assert len({one.job.args["n"] for one in source.settled if isinstance(one.outcome, rj.Complete)}) == 100


@on_virtual_time
async def test_what_comes_when_its_pipeline_is_stopped_goes_back():
    source = Both(100)
    async with runs(pulled(source)):
        await asyncio.sleep(2.5)
        assert source.on_their_way == 2
    assert source.out == 0
    assert Counter(type(one.outcome) for one in source.settled) == {rj.Complete: 20, rj.Release: 10}


@on_virtual_time
async def test_fewer_places_are_not_exceeded_by_what_is_on_its_way():
    source = Both(200)
    async with runs(pulled(source)):
        await asyncio.sleep(2.5)
        source.control.on_next(Control(max_demand=4))
        await asyncio.sleep(5)
        source.most_out = 0
        await asyncio.sleep(20)
        assert source.most_out == 4
        source.control.on_next(Control())
        await asyncio.sleep(60)
    assert source.most_out == 10
    assert source.settled_once(200)


class Taking:
    """A pull that always takes more."""

    takes_more = True
    is_handing_on = False

    def room(self, must_ask: bool) -> None: ...

    def asked(self) -> None: ...

    def exchanged(self, jobs: list[rj.Job], asked: int, began: int) -> None: ...


@on_virtual_time
async def test_what_a_fetch_brings_is_of_the_time_that_it_was_asked_in_whatever_comes_before_it():
    """Its node was cut off meanwhile: others may have those jobs, and what is exchanged after that has none of it."""
    source = Both(20)
    held_by = Ledger(source, Demand(10), LoopScheduler(asyncio.get_running_loop()), lambda event: None)
    held_by.join(Taking())
    held, fetched = [held_by.hold(job, now()) for job in await source.fetch(5)], list[rj.Job]()
    source.fetch_seconds = 2.0
    held_by.fetch(5, lambda jobs: fetched.extend(held_by.hold(job, now()) for job in jobs), lambda error: None)
    held_by.cut_off()
    for job in held:
        settle(Finished(job, rj.Complete()))
    await asyncio.sleep(3)
    assert source.exchanges == [(5, 5)]
    assert [job.hold.era for job in fetched] == [0] * 5
    for job in fetched:
        job.hold.settled = True
