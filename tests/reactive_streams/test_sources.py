"""The rules of Reactive Streams for every source and the pull that asks it, each test named by the number of its rule.

A source is the Publisher and its pull the Subscriber: to ask for jobs is `request(n)`, to be disposed is `cancel()`. A job that is
settled makes room, for which is asked again. What each rule means here is said in the first line of its test.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from reactivex import operators as ops

import rxjobs as rj
from rxjobs.demand import settle
from rxjobs.testing import MemorySource, a_job, fill
from rxjobs.testing.watched import runs
from tests.reactive_streams.spied import COMPLETED, ERROR, NEXT, Asked, Spy, Taker
from tests.store.ground import a_shared_database, emptied
from tests.waiting import until

UNBOUNDED = 2**63 - 1

Make = Callable[[int], Awaitable[Asked]]


def in_memory(count: int) -> rj.Source:
    source = MemorySource(a_job(args={"n": n}) for n in range(count))
    source.close()
    return source


def iterated(count: int) -> rj.Source:
    return rj.IterableSource([a_job(args={"n": n}) for n in range(count)])


def iterated_in_time(count: int) -> rj.Source:
    async def items() -> AsyncIterator[rj.Job]:
        for n in range(count):
            yield a_job(args={"n": n})

    return rj.AsyncIterableSource(items())


WITHOUT_A_DATABASE = {"MemorySource": in_memory, "IterableSource": iterated, "AsyncIterableSource": iterated_in_time}


@pytest.fixture(scope="module")
def ground(databases):
    yield from a_shared_database(databases)


@pytest.fixture
async def in_postgres(ground):
    """A function that gives the source of a queue with so many jobs, on a node that has a lease and runs nothing else."""
    app = rj.App(await emptied(ground), node="node-a")
    app.job(name="work", queue="mail")(lambda n=0: None)
    async with app:
        await app.store.take_lease(app.id, "node-a", 1, 600.0)

        async def make(count: int) -> rj.Source:
            connection = await asyncpg.connect(ground)
            await fill(connection, "work", count, queue="mail")
            await connection.close()
            return rj.PostgresSource(app, "mail")

        yield make


@pytest.fixture(params=[*WITHOUT_A_DATABASE, "PostgresSource"])
def make(request) -> Make:
    """A function that makes a source of so many jobs, of each kind."""
    if request.param == "PostgresSource":
        in_postgres = request.getfixturevalue("in_postgres")

        async def asked(count: int) -> Asked:
            return Asked(await in_postgres(count))

        return asked

    async def made(count: int) -> Asked:
        return Asked(WITHOUT_A_DATABASE[request.param](count))

    return made


def done(*jobs: rj.Job) -> None:
    for job in jobs:
        settle(rj.Finished(job, rj.Complete()))


async def silence() -> None:
    """Long enough for whatever would be said next."""
    await asyncio.sleep(0.1)


async def test_rule_1_01_no_more_is_given_than_was_asked_for(make: Make):
    """A source gives at most the jobs that it is asked for, and a pull asks for as many as there is room for."""
    source = await make(30)
    asked_for = list[int]()
    taker = Taker(lambda _: asked_for.append(sum(source.asked)))
    subscription = rj.pull(source, max_demand=7).subscribe(taker)
    await until(lambda: len(taker.taken) == 7)
    await silence()
    assert source.asked[0] == 7
    assert len(taker.taken) == 7
    done(*taker.taken[:5])
    await until(lambda: len(taker.taken) > 7)
    await silence()
    assert 7 < len(taker.taken) <= 12
    assert all(given <= asked for given, asked in enumerate(asked_for, 1))
    subscription.dispose()


async def test_rule_1_02_fewer_may_be_given(make: Make):
    """A source that has fewer jobs gives those, which is no error."""
    source = await make(3)
    taker = Taker()
    subscription = rj.pull(source, max_demand=10).subscribe(taker)
    await until(lambda: len(taker.taken) == 3)
    await silence()
    assert ERROR not in taker.signals
    assert len(taker.taken) == 3
    subscription.dispose()


async def test_rule_1_03_signals_come_one_after_the_other(make: Make):
    """Jobs and the end come on the event loop, never inside of each other, whichever thread wakes the source."""
    source = await make(200)
    taker = Taker(done)
    subscription = rj.pull(source, max_demand=5).subscribe(taker)
    threads = [threading.Thread(target=lambda: [source.wake.on_next("wake") for _ in range(300)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    await until(lambda: len(taker.taken) == 200)
    await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
    assert taker.overlaps == 0
    assert taker.threads == {threading.get_ident()}
    subscription.dispose()


async def test_rule_1_04_a_failure_is_told_by_on_error(make: Make):
    """What asking a source raises is one `on_error`, after which the runner subscribes again; a job that fails is none."""
    source = await make(3)
    source.fails = True
    taker = Taker()
    rj.pull(source, max_demand=10).subscribe(taker)
    await until(lambda: taker.signals)
    assert taker.signals == [ERROR]


async def test_rules_1_05_and_1_07_the_end_is_told_once_and_nothing_after_it(make: Make):
    """A source that has no more completes its stream, one that is stopped as well; and then it is still."""
    source, spy = await make(20), Spy()
    async with runs(rj.pull(source, max_demand=5).pipe(spy, rj.complete(), rj.ack())) as observed:
        await until(lambda: len(source.settled) == 20)
        if not isinstance(source.source, rj.PostgresSource):  # a queue has never given its last job
            await asyncio.wait_for(observed.running.wait(), 30)
    (taker,) = spy.takers
    source.wake.on_next("wake")
    await silence()
    assert taker.signals == [*[NEXT] * 20, COMPLETED]


async def test_rule_1_07_nothing_comes_after_an_error(make: Make):
    """After `on_error` neither a wake nor room brings jobs, or a second end."""
    source = await make(20)
    taker = Taker()
    rj.pull(source, max_demand=5).subscribe(taker)
    await until(lambda: len(taker.taken) == 5)
    source.fails = True
    done(*taker.taken)
    await until(lambda: taker.ends)
    asked = len(source.asked)
    source.wake.on_next("wake")
    await silence()
    assert taker.ends == [ERROR]
    assert len(source.asked) == asked


async def test_rules_1_08_and_3_12_whoever_cancels_is_told_no_more(make: Make):
    """Once disposed, no job comes, and no end."""
    source = await make(20)
    taker = Taker()
    subscription = rj.pull(source, max_demand=5).subscribe(taker)
    await until(lambda: len(taker.taken) == 5)
    subscription.dispose()
    source.wake.on_next("wake")
    done(*taker.taken)
    await silence()
    assert taker.signals == [NEXT] * 5


async def test_rule_2_01_nothing_comes_that_was_not_asked_for(make: Make):
    """A wake is a hint and no job: while nothing is asked for, nothing comes."""
    source = await make(20)
    taker = Taker()
    subscription = rj.pull(source, max_demand=2, min_demand=0).subscribe(taker)
    await until(lambda: len(taker.taken) == 2)
    for _ in range(10):
        source.wake.on_next("wake")
    await silence()
    assert len(taker.taken) == 2
    assert len(source.asked) == 1
    subscription.dispose()


async def test_rule_2_04_after_the_end_nothing_more_is_asked_for(make: Make):
    """A pull whose stream has ended listens to no wake and asks for nothing."""
    source = await make(5)
    async with runs(rj.pull(source, max_demand=5).pipe(rj.complete(), rj.ack())):
        await until(lambda: len(source.settled) == 5)
    asked = len(source.asked)
    source.wake.on_next("wake")
    await silence()
    assert not source.is_heard
    assert len(source.asked) == asked


async def test_rule_2_06_what_is_not_needed_any_more_is_cancelled(make: Make):
    """An operator that has enough (`ops.take`) ends the asking, and what was fetched beyond that goes back."""
    source = await make(20)
    async with runs(rj.pull(source, max_demand=5).pipe(ops.take(3), rj.complete(), rj.ack())) as observed:
        await observed.running.wait()
        assert not source.is_heard
        await until(lambda: len(source.settled) == source.given == 5)
    assert sorted(type(one.outcome).__name__ for one in source.settled) == ["Complete"] * 3 + ["Release"] * 2


async def test_rule_2_08_what_comes_after_a_cancel_is_given_back(make: Make):
    """Jobs that a source gives when nobody wants them any more are released, each once."""
    source = await make(20)
    source.answers.clear()
    taker = Taker()
    subscription = rj.pull(source, max_demand=5).subscribe(taker)
    await until(lambda: source.fetched == 5)
    subscription.dispose()
    source.answers.set()
    await until(lambda: len(source.settled) == 5)
    assert taker.signals == []
    assert [(type(one.outcome), one.job.attempt) for one in source.settled] == [(rj.Release, 1)] * 5
    assert len({one.job.id for one in source.settled}) == 5


@pytest.mark.parametrize("count", [0, 5])
async def test_rules_2_09_and_2_10_an_end_may_come_before_any_job(make: Make, count: int):
    """A source may end, or fail, before it has given anything."""
    ended, failed = await make(0), await make(count)
    spy, taker = Spy(), Taker()
    async with runs(rj.pull(ended, max_demand=5).pipe(spy, rj.complete(), rj.ack())):
        await until(lambda: ended.asked)
    assert spy.takers[0].ends == [COMPLETED]
    failed.fails = True
    rj.pull(failed, max_demand=5).subscribe(taker)
    await until(lambda: taker.signals)
    assert taker.signals == [ERROR]


async def test_rule_2_12_it_is_subscribed_once(make: Make):
    """A pull listens to its source once for each time that it is subscribed itself."""
    source = await make(5)
    async with runs(rj.pull(source, max_demand=2).pipe(rj.complete(), rj.ack())):
        await until(lambda: len(source.settled) == 5)
    assert source.listened == 1


async def test_rule_3_03_asking_while_told_does_not_recurse(make: Make):
    """A job that is settled inside of `on_next` makes room: what that brings comes later, and the stack grows no deeper."""
    source = await make(150)
    taker = Taker(done)
    subscription = rj.pull(source, max_demand=1).subscribe(taker)
    await until(lambda: len(taker.taken) == 150)
    assert max(taker.depths) - min(taker.depths) < 20
    subscription.dispose()


async def test_rules_3_05_and_3_07_to_cancel_twice_is_to_cancel_once(make: Make):
    """Disposed again, nothing happens."""
    source = await make(20)
    taker = Taker()
    subscription = rj.pull(source, max_demand=5).subscribe(taker)
    await until(lambda: len(taker.taken) == 5)
    for _ in range(3):
        subscription.dispose()
    taker.taken.clear()
    await until(lambda: len(source.settled) == 5)
    await silence()
    assert len(source.settled) == 5


async def test_rule_3_06_after_a_cancel_room_asks_for_nothing(make: Make):
    """Jobs that are settled after their pull was disposed make room that nobody asks for."""
    source = await make(20)
    taker = Taker()
    subscription = rj.pull(source, max_demand=5).subscribe(taker)
    await until(lambda: len(taker.taken) == 5)
    subscription.dispose()
    asked = len(source.asked)
    done(*taker.taken)
    await until(lambda: len(source.settled) == 5)
    await silence()
    assert len(source.asked) == asked


@pytest.mark.parametrize("demand", [0, -1, True, 2.5])
async def test_rule_3_09_less_than_one_cannot_be_asked_for(make: Make, demand: Any):
    """A demand below 1 is refused where it is declared, and no source is ever asked for so little."""
    source = await make(40)
    with pytest.raises(rj.InvalidOption, match=r"max_demand is a whole number of at least 1, not"):
        rj.pull(source, max_demand=demand)
    async with runs(rj.pull(source, max_demand=3).pipe(rj.complete(), rj.ack())):
        await until(lambda: len(source.settled) == 40)
    assert min(source.asked) >= 1


async def test_rule_3_13_who_has_cancelled_is_forgotten(make: Make):
    """A source that lives on keeps nothing of a pull that was disposed, nor of who listened to it."""
    source = await make(20)
    taker = Taker()
    subscription = rj.pull(source, max_demand=5).subscribe(taker)
    await until(lambda: len(taker.taken) == 5)
    done(*taker.taken)
    await until(lambda: len(source.settled) >= 5)
    subscription.dispose()
    forgotten = weakref.ref(taker)
    taker, subscription = None, None
    await silence()  # what was on its way arrives
    gc.collect()
    assert forgotten() is None


@pytest.mark.parametrize("demand", [UNBOUNDED, 10**30])
async def test_rule_3_17_demand_may_be_as_good_as_unbounded(make: Make, demand: int):
    """As many as 2**63 - 1 jobs, and more, may be asked for, and room may be made without end."""
    source = await make(300)
    async with runs(rj.pull(source, max_demand=demand).pipe(rj.complete(), rj.ack())) as observed:
        await until(lambda: len(source.settled) == 300 or observed.events[-1].name == "pipeline.restart")
        observed.never_broke()
    assert source.asked[0] == demand
    assert len({one.job.id for one in source.settled}) == 300
