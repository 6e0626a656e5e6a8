"""The rules of Reactive Streams for every dispatcher and its branches, each test named by the number of its rule.

A dispatcher is the Publisher and each of its branches a Subscriber: its free places are what it has asked for, and a job that it
settles asks for one more. To remove a branch, or an end of its own, is `cancel()`. What each rule means here is said in the first
line of its test.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from reactivex import operators as ops
from reactivex.scheduler import ThreadPoolScheduler

import rxjobs as rj
from rxjobs.testing import MemorySource, a_job
from rxjobs.testing.watched import Watched, runs
from tests.operators.dispatched import taking
from tests.reactive_streams.spied import COMPLETED, NEXT, Spy, Taker
from tests.virtual import on_virtual_time
from tests.waiting import until

UNBOUNDED = 2**63 - 1

Dispatcher = Callable[[Any], Any]


def by_key(job: rj.Job) -> int:
    return int(job.args["n"])


DISPATCHERS: dict[str, Dispatcher] = {
    "balance": lambda branch: rj.balance(branch, branch),
    "broadcast": lambda branch: rj.broadcast(branch, branch),
    "partition": lambda branch: rj.partition(2, by=by_key, branch=branch),
}


@pytest.fixture(params=[*DISPATCHERS])
def dispatcher(request) -> Dispatcher:
    """A function that makes a dispatcher with two of the branch it is given, of each kind."""
    return DISPATCHERS[request.param]


def watching(count: int, max_demand: int = 20) -> Watched:
    source = MemorySource(a_job(args={"n": n}) for n in range(count))
    source.close()
    return Watched(source, max_demand)


def pipeline(watched: Watched, *operators: Any) -> Any:
    return rj.pull(watched, max_demand=watched.demand.max_demand).pipe(*operators, rj.ack())


class Places:
    """A branch that counts the jobs it has been given and has not settled."""

    def __init__(self, max_demand: int, seconds: float = 1.0) -> None:
        self.spy = Spy()
        self.held = 0
        self.most = 0
        self._seconds = seconds
        self.branch = rj.branch(self.spy, rj.enrich(self._work, concurrency=100), rj.complete(), max_demand=max_demand)

    async def _work(self, job: rj.Job) -> None:
        self.held += 1
        self.most = max(self.most, self.held)
        await asyncio.sleep(self._seconds)
        self.held -= 1


@on_virtual_time
async def test_rule_1_01_no_more_is_given_than_was_asked_for(dispatcher: Dispatcher):
    """A branch is given at most as many jobs that it has not settled as it has places."""
    watched, places = watching(30), Places(3)
    async with runs(pipeline(watched, dispatcher(places.branch))) as observed:
        await observed.running.wait()
    assert places.most == 2 * 3  # two branches, which share the counting
    watched.hold_to_the_laws()
    assert len(watched.settled) == 30


@on_virtual_time
async def test_rule_1_02_fewer_may_be_given(dispatcher: Dispatcher):
    """Branches with more room than there are jobs are given what there is, and the end."""
    watched, places = watching(2), Places(10)
    async with runs(pipeline(watched, dispatcher(places.branch))) as observed:
        await observed.running.wait()
    assert len(watched.settled) == 2
    assert all(taker.ends == [COMPLETED] for taker in places.spy.takers)


async def test_rule_1_03_signals_come_one_after_the_other(dispatcher: Dispatcher):
    """A branch is told of jobs and of the end on the event loop and never inside of each other, whatever thread they come from."""
    watched, spy, threads = watching(300), Spy(), ThreadPoolScheduler(2)
    try:
        stream = pipeline(watched, ops.observe_on(threads), dispatcher(rj.branch(spy, rj.complete(), max_demand=2)))
        async with runs(stream) as observed:
            await asyncio.wait_for(observed.running.wait(), 30)
    finally:
        threads.executor.shutdown()
    assert len(watched.settled) == 300
    assert sum(taker.overlaps for taker in spy.takers) == 0
    assert set().union(*(taker.threads for taker in spy.takers)) == {threading.get_ident()}


@on_virtual_time
async def test_rules_1_05_and_1_07_the_end_is_told_once_and_nothing_after_it(dispatcher: Dispatcher):
    """When there are no more jobs every branch completes, once, after its last job; then the dispatcher does."""
    watched, spy, after = watching(11), Spy(), Spy()
    async with runs(pipeline(watched, dispatcher(rj.branch(spy, *taking(1).operators)), after)) as observed:
        await observed.running.wait()
    assert all(taker.signals == [*[NEXT] * len(taker.taken), COMPLETED] for taker in [*spy.takers, *after.takers])
    assert len(after.jobs) == 11


@on_virtual_time
async def test_rule_1_07_nothing_comes_after_an_error(dispatcher: Dispatcher):
    """When what is before it fails, neither its branches nor what is behind it are told of any job after that."""
    watched, spy, after = watching(11, max_demand=4), Spy(), Spy()

    def break_at_five(job: rj.Job) -> rj.Job:
        if job.args["n"] == 5:
            raise RuntimeError("broken")
        return job

    stream = pipeline(watched, ops.map(break_at_five), dispatcher(rj.branch(spy, *taking(1).operators)), after)
    async with runs(stream, max_restarts=1) as observed:
        with pytest.raises(rj.PipelineBroken):
            await observed.running.wait()
        told = [len(taker.signals) for taker in [*spy.takers, *after.takers]]
        await asyncio.sleep(10)
        assert [len(taker.signals) for taker in [*spy.takers, *after.takers]] == told
    assert all(taker.signals[-1] == "error" for taker in after.takers)
    watched.hold_to_the_laws()


@on_virtual_time
async def test_rules_1_08_and_3_12_whoever_cancels_is_told_no_more(dispatcher: Dispatcher):
    """Disposed, a dispatcher gives its branches nothing more, and what they hold goes back."""
    watched, spy = watching(30, max_demand=6), Spy()
    stream = pipeline(watched, dispatcher(rj.branch(spy, *taking(2).operators)))
    subscription = stream.subscribe()
    await asyncio.sleep(1)
    given = len(spy.jobs)
    subscription.dispose()
    for taker in spy.takers:
        taker.taken.clear()
    await asyncio.sleep(10)
    assert given > 0
    assert spy.jobs == []
    watched.hold_to_the_laws()
    assert {type(one.outcome) for one in watched.settled} == {rj.Release}


@on_virtual_time
async def test_rule_2_04_after_its_own_end_a_branch_is_given_nothing(dispatcher: Dispatcher):
    """A branch that completes by itself counts as cancelled: what it had not settled goes on or back, and it gets no more."""
    watched, spy = watching(12, max_demand=4), Spy()
    dispatch = dispatcher(rj.branch(spy, ops.take(1), *taking(1).operators))
    async with runs(pipeline(watched, dispatch)) as observed:
        await observed.running.wait()
    assert [len(taker.taken) for taker in spy.takers] == [1, 1]
    watched.hold_to_the_laws()


@pytest.mark.parametrize("kind", ["balance", "broadcast"])
@on_virtual_time
async def test_rule_2_06_what_is_not_needed_any_more_is_cancelled(kind: str):
    """A branch that is removed is given nothing more, and finishes what it has."""
    watched, gone, stays = watching(30, max_demand=6), Places(2), Places(2)
    dispatch = getattr(rj, kind)(gone.branch, stays.branch)
    async with runs(pipeline(watched, dispatch)) as observed:
        await asyncio.sleep(2.5)
        dispatch.remove(gone.branch)
        given, held = len(gone.spy.jobs), gone.held
        await observed.running.wait()
    assert held > 0
    assert gone.held == 0
    assert len(gone.spy.jobs) == given
    assert {type(one.outcome) for one in watched.settled} == {rj.Complete}
    watched.hold_to_the_laws()


@on_virtual_time
async def test_rule_2_08_what_comes_after_a_cancel_is_given_back(dispatcher: Dispatcher):
    """Jobs that come to a dispatcher that is killed, or wait in it for a branch, are released, each once."""
    watched, places = watching(30, max_demand=10), Places(1, seconds=100)
    async with runs(pipeline(watched, dispatcher(places.branch)), grace=0):
        await asyncio.sleep(5)
    watched.hold_to_the_laws()
    assert [type(one.outcome) for one in watched.settled] == [rj.Release] * 10


@on_virtual_time
async def test_rule_2_12_each_branch_is_subscribed_once(dispatcher: Dispatcher):
    """As often as a branch was given, so often it is subscribed; and each subscription is disposed of."""
    watched, spy = watching(20), Spy()
    async with runs(pipeline(watched, dispatcher(rj.branch(spy, rj.complete())))) as observed:
        await observed.running.wait()
    assert len(spy.takers) == 2
    assert spy.disposed == 2


@on_virtual_time
async def test_rule_3_03_asking_while_told_does_not_recurse(dispatcher: Dispatcher):
    """A branch that settles a job while it is told of it makes room inside of that, and the stack grows no deeper."""
    watched, spy = watching(1000, max_demand=1000), Spy()
    async with runs(pipeline(watched, dispatcher(rj.branch(spy, rj.complete(), max_demand=1)))) as observed:
        await observed.running.wait()
    depths = [depth for taker in spy.takers for depth in taker.depths]
    assert len(watched.settled) == 1000
    assert max(depths) - min(depths) < 50


@on_virtual_time
async def test_rules_3_05_3_06_and_3_07_after_a_cancel_room_and_another_cancel_do_nothing(dispatcher: Dispatcher):
    """Places that become free after a dispose are given to nobody; disposed again, nothing happens."""
    watched, spy = watching(30, max_demand=6), Spy()
    kept = Taker()
    branch = rj.branch(spy, ops.do_action(kept.on_next), rj.branch(*taking(1).operators), max_demand=2)
    subscription = pipeline(watched, dispatcher(branch)).subscribe()
    await asyncio.sleep(0.5)
    for _ in range(3):
        subscription.dispose()
    given, asked = len(spy.jobs), len(watched.fetched)
    await asyncio.sleep(10)
    assert (len(spy.jobs), len(watched.fetched)) == (given, asked)


@pytest.mark.parametrize("demand", [0, -1, True, 2.5])
def test_rule_3_09_less_than_one_cannot_be_asked_for(demand: Any):
    """A branch with less than one place is refused where it is declared, and so are less than one of them."""
    with pytest.raises(rj.InvalidOption, match="max_demand is a whole number of at least 1, not"):
        rj.branch(rj.complete(), max_demand=demand)
    with pytest.raises(rj.InvalidOption, match="n is a whole number of at least 1, not"):
        rj.partition(demand, by="type", branch=rj.complete())


async def test_rule_3_13_who_has_cancelled_is_forgotten(dispatcher: Dispatcher):
    """A dispatcher that is kept keeps nothing of a pipeline that was disposed, nor of who listened to that."""
    dispatch, watched, taker = dispatcher(rj.complete()), watching(10), Taker()
    subscription = pipeline(watched, dispatch).subscribe(taker)
    await until(lambda: len(taker.taken) == 10)
    subscription.dispose()
    forgotten = weakref.ref(taker)
    taker, subscription = None, None
    await asyncio.sleep(0.05)
    gc.collect()
    assert forgotten() is None


@on_virtual_time
async def test_rule_3_17_demand_may_be_as_good_as_unbounded(dispatcher: Dispatcher):
    """A branch may have 2**63 - 1 places, and more."""
    for demand in (UNBOUNDED, 10**30):
        watched = watching(50, max_demand=demand)
        branch = rj.branch(*taking(1, 50).operators, max_demand=demand)
        async with runs(pipeline(watched, dispatcher(branch))) as observed:
            await observed.running.wait()
        assert len(watched.settled) == 50
        watched.hold_to_the_laws()
