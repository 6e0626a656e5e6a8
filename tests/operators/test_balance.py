"""Jobs go to the branch with most room; and what holds for every dispatcher."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import uuid
from typing import Any

import pytest
import reactivex as rx
from reactivex import operators as ops
from reactivex.subject import Subject

import rxjobs as rj
from rxjobs.events import BranchRestarted, JobDropped, PipelineRestarted
from rxjobs.source import Control
from rxjobs.testing import MemorySource, a_job, job_type, marbles
from rxjobs.testing.watched import Watched, runs
from tests.operators.dispatched import Runs, a_type_of, taking
from tests.virtual import on_virtual_time


def numbered(count: int, definition: Any = None) -> MemorySource:
    definition = definition or a_type_of(FIVE_SECONDS)
    source = MemorySource(a_job(args={"n": n}, definition=definition) for n in range(count))
    source.close()
    return source


async def until(fact: Any) -> None:
    """Wait on virtual time."""
    async with asyncio.timeout(1000):
        while not fact():  # noqa: ASYNC110 - a virtual tick costs nothing
            await asyncio.sleep(0.01)


def test_a_fast_branch_gets_more():
    marbles(rj.balance(taking(4), taking(1)), "abcde|", "--BC(AD)---(E|)")


def test_of_three_branches_the_one_with_most_free_demand_gets_the_next_job():
    seen = dict[str, str]()

    def branch(name: str, size: int) -> rj.Branch:
        return rj.branch(rj.map(lambda job: seen.setdefault(job.args["letter"], name) and job), ops.delay(9), max_demand=size)

    marbles(rj.balance(branch("one", 1), branch("two", 3), branch("three", 2)), "(abcdef)|", "---------(abecfd)|")
    assert "".join(seen[letter][1] for letter in "abcdef") == "wwhnwh"


def test_what_is_finished_passes_and_lists_are_taken_one_by_one():
    marbles(rj.balance(taking(1), taking(2)), "[aBc]-D-|", "BA(DC)-|")


def test_jobs_without_a_settling_stage_go_on_as_jobs():
    marbles(rj.balance(ops.map(lambda job: job)), "ab|", "ab|")
    marbles(rj.balance(rj.buffer(2, 5)), "abc--|", "-[ab]---([c]|)")


def test_an_error_before_it_goes_down():
    marbles(rj.balance(taking(1)), "a--#", "-A-#")


@on_virtual_time
async def test_an_ack_in_a_branch_is_a_real_one_and_is_told_once_it_is_written():
    order = list[str]()

    class Slow(MemorySource):
        async def settle(self, finished: Any) -> None:
            await asyncio.sleep(1)
            order.append("written")
            await super().settle(finished)

    source = Slow([a_job(), a_job()])
    source.close()
    branch = rj.branch(rj.complete(), rj.ack(), ops.do_action(lambda _: order.append("told")))
    stream = rj.pull(source, max_demand=1, min_demand=0).pipe(
        rj.balance(branch), ops.do_action(lambda _: order.append("out")), rj.ack()
    )
    async with runs(stream) as observed:
        await observed.running.wait()
    assert order == ["written", "told", "out"] * 2
    assert len(source.settled) == 2


@on_virtual_time
async def test_a_job_dropped_in_a_branch_is_released_and_makes_room(caplog):
    watched = Watched(numbered(6), 6)
    left = {0, 3}

    def keep(item: Any) -> bool:
        drop = isinstance(item, rj.Job) and item.args["n"] in left
        left.discard(item.args["n"] if drop else -1)
        return not drop

    branch = rj.branch(ops.filter(keep), rj.complete(), max_demand=1)
    async with runs(rj.pull(watched, max_demand=6).pipe(rj.balance(branch), rj.ack())) as observed:
        await observed.running.wait()
    watched.hold_to_the_laws()
    released = [one for one in watched.settled if isinstance(one.outcome, rj.Release)]
    assert [(one.job.args["n"], one.outcome.delay) for one in released] == [(0, 5.0), (3, 5.0)]
    assert sum(isinstance(one, JobDropped) for one in observed.events) == 2
    assert "was dropped by an operator of its pipeline" in caplog.text


@on_virtual_time
async def test_what_is_dropped_in_a_branch_after_it_has_ended_is_written_down_as_it_ended():
    source = numbered(3)
    branch = rj.branch(rj.complete(), ops.filter(lambda _: False), max_demand=1)
    async with runs(rj.pull(source, max_demand=3).pipe(rj.balance(branch), rj.ack())) as observed:
        await observed.running.wait()
    assert [type(one.outcome) for one in source.settled] == [rj.Complete] * 3


class Broken:
    """An operator that breaks at a job of some number, as often as is said."""

    def __init__(self, at: int, times: int) -> None:
        self.at, self.left = at, times

    def operators(self) -> list[Any]:
        return [ops.map(self._break), rj.execute(concurrency=5)]

    def _break(self, job: Any) -> Any:
        if isinstance(job, rj.Job) and job.args["n"] == self.at and self.left:
            self.left -= 1
            raise RuntimeError(f"broken by {self.at}")
        return job


@on_virtual_time
async def test_a_branch_that_breaks_is_subscribed_again_and_its_siblings_do_not_notice(caplog):
    slow, sibling = Runs(lambda _: 1.0), Runs(lambda _: 0.1)
    watched = Watched(numbered(40, definition=a_type_of(slow)), 10)
    dispatch = rj.balance(
        rj.branch(*Broken(2, 1).operators(), max_demand=3, name="fragile"),
        rj.branch(rj.enrich(sibling), rj.complete(), max_demand=2),
    )
    async with runs(rj.pull(watched, max_demand=10).pipe(dispatch, rj.ack())) as observed:
        await observed.running.wait()
    watched.hold_to_the_laws()
    observed.hold_to_the_laws()
    restarts = [one for one in observed.events if isinstance(one, BranchRestarted)]
    assert [(one.pipeline, one.branch, one.error.message) for one in restarts] == [("pipeline-1", "fragile", "broken by 2")]
    assert 0.5 <= restarts[0].delay <= 0.55
    assert "branch fragile broke, and is subscribed again in 0.5 s" in caplog.text
    # what was in flight in it ran on, and ended once; after the restart it had more
    completed = [one.job.args["n"] for one in watched.settled if isinstance(one.outcome, rj.Complete)]
    assert sorted(completed) == list(range(40))
    assert len(slow.began) > 3
    # the job that it broke at went back for as long as the branch was away
    assert [(one.job.args["n"], one.outcome.delay > 0.4) for one in watched.settled if isinstance(one.outcome, rj.Release)] == [
        (2, True)
    ]


@on_virtual_time
async def test_a_branch_that_breaks_again_and_again_breaks_its_pipeline():
    broken = Broken(0, 5)
    watched = Watched(numbered(5), 4)
    dispatch = rj.balance(rj.branch(*broken.operators(), max_demand=1))
    async with runs(rj.pull(watched, max_demand=4).pipe(dispatch, rj.ack()), max_restarts=3) as observed:
        await observed.running.wait()
    watched.hold_to_the_laws()
    kinds = [type(one) for one in observed.events if isinstance(one, BranchRestarted | PipelineRestarted)]
    assert kinds == [BranchRestarted] * 3 + [PipelineRestarted, BranchRestarted]


@on_virtual_time
async def test_stopped_while_a_branch_is_down_it_ends_and_gives_back_what_waits():
    watched = Watched(numbered(30), 8)
    dispatch = rj.balance(rj.branch(*Broken(0, 1).operators(), max_demand=2), taking(50))
    async with runs(rj.pull(watched, max_demand=8).pipe(dispatch, rj.ack()), grace=100) as observed:
        await until(lambda: any(isinstance(one, BranchRestarted) for one in observed.events))
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 60
    watched.hold_to_the_laws()
    observed.hold_to_the_laws()
    assert sum(isinstance(one.outcome, rj.Release) for one in watched.settled) >= 6


@on_virtual_time
async def test_branches_come_and_go_while_it_runs():
    watched = Watched(numbered(60), 20)
    first, second = Runs(lambda _: 1.0), Runs(lambda _: 1.0)
    one, two = rj.branch(rj.enrich(first), rj.complete(), max_demand=2), rj.branch(rj.enrich(second), rj.complete(), max_demand=4)
    dispatch = rj.balance(one)
    async with runs(rj.pull(watched, max_demand=20).pipe(dispatch, rj.ack())) as observed:
        await until(lambda: len(first.began) == 4)
        assert dispatch.branches == (one,)
        dispatch.add(two)
        await until(lambda: len(second.began) >= 4)
        began = len(first.began)
        assert len(first.now) == 2
        thread = threading.Thread(target=dispatch.remove, args=[one])  # from any thread
        thread.start()
        thread.join()
        await observed.running.wait()
        assert dispatch.branches == (two,)
    assert len(first.began) == began
    watched.hold_to_the_laws()
    observed.hold_to_the_laws()
    assert {type(one.outcome) for one in watched.settled} == {rj.Complete}
    assert len(watched.settled) == 60


@on_virtual_time
async def test_without_branches_jobs_wait_for_one():
    watched = Watched(numbered(5), 5)
    branch = taking(1)
    dispatch = rj.balance(branch)
    dispatch.remove(branch)
    async with runs(rj.pull(watched, max_demand=5).pipe(dispatch, rj.ack())) as observed:
        await asyncio.sleep(10)
        assert watched.settled == []
        dispatch.add(branch)
        await observed.running.wait()
    watched.hold_to_the_laws()
    assert len(watched.settled) == 5


def test_a_branch_that_is_none_of_its_branches_cannot_be_removed():
    dispatch = rj.balance(rj.execute(), name="mine")
    with pytest.raises(rj.InvalidOption, match=r"rj.balance: .* is no branch of mine"):
        dispatch.remove(rj.execute())


def test_when_all_branches_have_ended_by_themselves_it_ends():
    marbles(rj.balance(rj.branch(ops.take(1), rj.complete()), rj.branch(ops.take(1), rj.complete())), "abc-|", "A(B|)")


def test_a_branch_that_splits_its_stream_hears_every_job_in_every_part():
    def split(source: Any) -> Any:
        is_a = lambda item: item.args["letter"] == "a"  # noqa: E731 - short
        return rx.merge(source.pipe(ops.filter(is_a)), source.pipe(ops.filter(lambda item: not is_a(item))))

    marbles(rj.balance(rj.branch(split, rj.complete(), max_demand=3)), "(ab)--|", "(AB)--|")


class Controlled(MemorySource):
    """A source that is told at run time to pause."""

    def __init__(self, jobs: Any) -> None:
        super().__init__(jobs)
        self.controls = Subject[Control]()


DISPATCHERS = {
    "balance": lambda: rj.balance(one_at_a_time(), one_at_a_time()),
    "broadcast": lambda: rj.broadcast(one_at_a_time(), one_at_a_time()),
    "partition": lambda: rj.partition(2, by="args.n", branch=one_at_a_time()),
    "partition, strict": lambda: rj.partition(2, by="args.n", branch=one_at_a_time(), strict=True),
    "nested": lambda: rj.broadcast(rj.partition(2, by="args.n", branch=rj.balance(one_at_a_time()))),
}
FIVE_SECONDS = Runs(lambda _: 5.0)


def one_at_a_time() -> Any:
    return rj.execute(concurrency=1)


@pytest.mark.parametrize("kind", DISPATCHERS)
@on_virtual_time
async def test_a_pause_gives_back_what_waits_and_lets_end_what_runs(kind):
    source = Controlled([a_job(args={"n": n}, definition=a_type_of(FIVE_SECONDS)) for n in range(20)])
    watched = Watched(source, 10)
    watched.controls = source.controls  # type: ignore[attr-defined]
    async with runs(rj.pull(watched, max_demand=10).pipe(DISPATCHERS[kind](), rj.ack())) as observed:
        await asyncio.sleep(1)
        assert len(observed.running.held_ids) == 10
        running = len(observed.running.running_ids)
        source.controls.on_next(Control(is_paused=True))
        await asyncio.sleep(1)
        assert len(observed.running.held_ids) == running <= 2
        await asyncio.sleep(10)
        assert not observed.running.held_ids
        assert sum(isinstance(one.outcome, rj.Complete) for one in watched.settled) == running
        source.controls.on_next(Control(is_paused=False))
        await until(lambda: sum(isinstance(one.outcome, rj.Complete) for one in watched.settled) == 20)
    watched.hold_to_the_laws()
    observed.hold_to_the_laws()


@pytest.mark.parametrize("kind", DISPATCHERS)
@on_virtual_time
async def test_killed_it_gives_everything_back(kind):
    watched = Watched(numbered(40), 10)
    async with runs(rj.pull(watched, max_demand=10).pipe(DISPATCHERS[kind](), rj.ack()), grace=0) as observed:
        await asyncio.sleep(7)
    assert not observed.running.held_ids
    watched.hold_to_the_laws()
    assert {type(one.outcome) for one in watched.settled} == {rj.Complete, rj.Release}


@pytest.mark.parametrize("kind", DISPATCHERS)
@on_virtual_time
async def test_drained_it_ends_what_it_holds(kind):
    watched = Watched(numbered(40), 10)
    async with runs(rj.pull(watched, max_demand=10).pipe(DISPATCHERS[kind](), rj.ack()), grace=200) as observed:
        await asyncio.sleep(7)
    watched.hold_to_the_laws()
    observed.hold_to_the_laws()
    assert {type(one.outcome) for one in watched.settled} == {rj.Complete}
    assert len(watched.settled) >= 10


@pytest.mark.parametrize("kind", DISPATCHERS)
@on_virtual_time
async def test_cut_off_it_gives_back_what_is_held_under_the_lease(kind):
    node = uuid.uuid4()
    watched = Watched(MemorySource(a_job(args={"n": n}, node=node, definition=a_type_of(FIVE_SECONDS)) for n in range(10)), 10)
    async with runs(rj.pull(watched, max_demand=10).pipe(DISPATCHERS[kind](), rj.ack())) as observed:
        await asyncio.sleep(1)
        observed.running.cut_off()
        await until(lambda: len(watched.settled) >= 10)
        assert {type(one.outcome) for one in watched.settled[:10]} == {rj.Release}


@pytest.mark.parametrize("kind", DISPATCHERS)
@on_virtual_time
async def test_disposed_without_a_runner_it_gives_everything_back(kind):
    watched = Watched(numbered(10), 10)
    subscription = rj.pull(watched, max_demand=10).pipe(DISPATCHERS[kind](), rj.ack()).subscribe()
    await asyncio.sleep(1)
    subscription.dispose()
    await until(lambda: len(watched.settled) >= 10)
    watched.hold_to_the_laws()


@pytest.mark.parametrize("kind", DISPATCHERS)
@on_virtual_time
async def test_when_its_pipeline_breaks_its_jobs_run_on_and_are_acked_once(kind):
    watched = Watched(numbered(20), 10)
    left = [1]

    def break_once(item: Any) -> Any:
        if left and item.job.args["n"] == 1:
            left.pop()
            raise RuntimeError("down the stream")
        return item

    async with runs(rj.pull(watched, max_demand=10).pipe(DISPATCHERS[kind](), ops.map(break_once), rj.ack())) as observed:
        await observed.running.wait()
    watched.hold_to_the_laws()
    assert sum(isinstance(one, PipelineRestarted) for one in observed.events) == 1
    assert sorted(one.job.args["n"] for one in watched.settled if isinstance(one.outcome, rj.Complete)) == list(range(20))


@on_virtual_time
async def test_what_a_broken_branch_holds_of_its_room_is_not_given_twice(caplog):
    """Its jobs in flight run on: the branch has less room until they have ended."""
    caplog.set_level(logging.CRITICAL)
    slow = Runs(lambda _: 20.0)
    watched = Watched(numbered(30, definition=a_type_of(slow)), 10)
    dispatch = rj.balance(rj.branch(*Broken(3, 1).operators(), max_demand=4))
    async with runs(rj.pull(watched, max_demand=10).pipe(dispatch, rj.ack())) as observed:
        await observed.running.wait()
    watched.hold_to_the_laws()
    assert slow.most == 4


@on_virtual_time
async def test_a_job_type_keeps_its_own_way_in_a_branch():
    async def work(n: int) -> int:
        assert rj.current_job().args["n"] == n
        return n

    source = numbered(5, definition=job_type(work))
    async with runs(rj.pull(source, max_demand=5).pipe(rj.balance(rj.execute(concurrency=2)), rj.ack())) as observed:
        await observed.running.wait()
    assert sorted(one.outcome.result for one in source.settled) == [0, 1, 2, 3, 4]


@on_virtual_time
async def test_nothing_of_it_is_left_when_its_pipeline_has_ended():
    async def once() -> None:
        watched = Watched(numbered(20), 5)
        async with runs(rj.pull(watched, max_demand=5).pipe(DISPATCHERS["nested"](), rj.ack())) as observed:
            await observed.running.wait()

    await once()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(3):
        await once()
    gc.collect()
    assert len(gc.get_objects()) - before < 500
