"""Every branch gets every job, and a job is settled once, when all of them have."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from reactivex import operators as ops

import rxjobs as rj
from rxjobs.events import BranchRestarted, JobDropped
from rxjobs.testing import MemorySource, a_job, job_type, marbles
from rxjobs.testing.watched import Watched, runs
from tests.operators.dispatched import Runs, a_type_of, taking
from tests.virtual import on_virtual_time

BY_SEVERITY = [
    rj.Discard("so"),
    rj.Retry(delay=5),
    rj.Cancel("so"),
    rj.Snooze(5),
    rj.Release(5),
    rj.Complete(),
]


def numbered(count: int, definition: Any = None) -> MemorySource:
    source = MemorySource(a_job(args={"n": n}, definition=definition) for n in range(count))
    source.close()
    return source


def test_a_job_goes_on_when_the_slowest_has_settled_it():
    marbles(rj.broadcast(taking(3), taking(1)), "-a------|", "----A---|")


def test_the_slowest_sets_the_pace():
    runs_ = Runs(lambda _: 1.0, key=lambda job: job.args["letter"])
    fast = rj.branch(rj.enrich(runs_), rj.complete())
    marbles(rj.broadcast(taking(3), fast), "abc-------|", "---A--B--C|")
    assert [key for key, _ in runs_.began] == ["a", "b", "c"]


def test_a_branch_with_more_room_does_not_run_ahead():
    fast = Runs(key=lambda job: job.args["letter"])
    marbles(
        rj.broadcast(taking(3), rj.branch(rj.enrich(fast), rj.complete(), max_demand=50)),
        "(abcd)-|",
        "---A--B--C--(D|)",
    )


def test_what_is_finished_passes_and_lists_are_taken_one_by_one():
    marbles(rj.broadcast(taking(1), taking(2)), "[aBc]----|", "B-A-C|")


@pytest.mark.parametrize("worse", range(len(BY_SEVERITY)))
def test_the_worst_outcome_wins(worse):
    for better in range(worse, len(BY_SEVERITY)):
        for order in ((worse, better), (better, worse)):
            branches = [taking(place + 1, outcome=BY_SEVERITY[one]) for place, one in enumerate(order)]
            (item,) = marbles(rj.broadcast(*branches), "a---|", "--A-|")
            assert type(item.outcome) is type(BY_SEVERITY[worse])


@pytest.mark.parametrize(
    ("first", "second", "wins"),
    [
        (rj.Retry(5), rj.Retry(60), rj.Retry(60)),
        (rj.Snooze(60), rj.Snooze(5), rj.Snooze(60)),
        (rj.Complete(), rj.Complete({"rows": 3}), rj.Complete({"rows": 3})),
        (rj.Complete("one"), rj.Complete("two"), rj.Complete("one")),
        (rj.Cancel("one"), rj.Cancel("two"), rj.Cancel("one")),
    ],
)
def test_of_two_alike_the_longer_delay_wins_or_the_one_with_a_result(first, second, wins):
    marbles(rj.broadcast(taking(1, outcome=first), taking(2, outcome=second)), "a---|", "--A-|", values={"A": wins})


def test_a_branch_that_a_job_is_not_for_completes_it():
    branch = rj.branch(rj.filter(lambda job: job.args["letter"] == "a", otherwise=rj.Complete()), *taking(3, 5).operators)
    marbles(rj.broadcast(branch, taking(1, 5)), "(ab)---|", "-B-A|", values={"A": rj.Complete, "B": rj.Complete})


@on_virtual_time
async def test_acks_inside_wait_for_all_branches_and_are_told_after_the_one_write():
    order = list[str]()

    class Slow(MemorySource):
        async def settle(self, finished: Any) -> None:
            order.append("write")
            await asyncio.sleep(1)
            order.append("written")
            await super().settle(finished)

    def branch(name: str, seconds: float) -> rj.Branch:
        return rj.branch(*taking(seconds).operators, rj.ack(), ops.do_action(lambda _: order.append(name)))

    source = Slow([a_job()])
    source.close()
    dispatch = rj.broadcast(branch("one", 1), branch("two", 4), taking(2))
    async with runs(
        rj.pull(source, max_demand=1).pipe(dispatch, ops.do_action(lambda _: order.append("out")), rj.ack())
    ) as observed:
        await observed.running.wait()
        assert asyncio.get_running_loop().time() >= 5
    assert order == ["write", "written", "out", "one", "two"]
    assert [type(one.outcome) for one in source.settled] == [rj.Complete]


def test_acks_inside_without_a_source_are_told_too():
    marbles(rj.broadcast(rj.branch(rj.complete(), rj.ack()), rj.branch(rj.complete(), rj.ack())), "-a-b|", "-A-B|")


@on_virtual_time
async def test_a_job_dropped_in_one_branch_is_released_for_all_once(caplog):
    watched, left = Watched(numbered(4), 4), {1}

    def keep(item: Any) -> bool:
        drop = isinstance(item, rj.Job) and item.args["n"] in left
        left.discard(1 if drop else -1)
        return not drop

    dispatch = rj.broadcast(rj.branch(ops.filter(keep), rj.complete()), taking(1))
    async with runs(rj.pull(watched, max_demand=4).pipe(dispatch, rj.ack())) as observed:
        await observed.running.wait()
    watched.hold_to_the_laws()
    assert [(one.job.args["n"], one.outcome.delay) for one in watched.settled if isinstance(one.outcome, rj.Release)] == [(1, 5.0)]
    assert sum(isinstance(one, JobDropped) for one in observed.events) == 1
    assert "was dropped by an operator of its pipeline" in caplog.text


@on_virtual_time
async def test_no_cycle_keeps_a_job_that_is_dropped_behind_it():
    gc.collect()
    gc.disable()
    try:
        source, left = numbered(3), [1]
        stream = rj.pull(source, max_demand=3).pipe(
            rj.broadcast(taking(1), taking(2)), ops.filter(lambda _: not left or bool(left.pop() - 1)), rj.ack()
        )
        async with runs(stream) as observed:
            await observed.running.wait()
    finally:
        gc.enable()
    assert [type(one.outcome) for one in source.settled] == [rj.Complete] * 3


@on_virtual_time
async def test_a_branch_that_settles_nothing_releases_and_says_what_it_lacks(caplog):
    source = MemorySource([a_job()])
    dispatch = rj.broadcast(rj.complete(), rj.branch(rj.map(lambda job: job), name="lookup"))
    async with runs(rj.pull(source, max_demand=1).pipe(dispatch, rj.ack())):
        await asyncio.sleep(1)
    assert [type(one.outcome) for one in source.settled] == [rj.Release]
    assert "came to the end of branch lookup without having been settled" in caplog.text


@on_virtual_time
async def test_a_branch_that_breaks_costs_a_release_and_no_sibling_its_subscription(caplog):
    left = [1]

    def break_once(item: Any) -> Any:
        if left and item.args["n"] == 2:
            left.pop()
            raise RuntimeError("once")
        return item

    slow = Runs(lambda _: 1.0)
    watched = Watched(numbered(10, a_type_of(slow)), 6)
    dispatch = rj.broadcast(rj.branch(ops.map(break_once), rj.complete()), rj.execute(concurrency=2))
    async with runs(rj.pull(watched, max_demand=6).pipe(dispatch, rj.ack())) as observed:
        await observed.running.wait()
    watched.hold_to_the_laws()
    observed.hold_to_the_laws()
    assert [one.branch for one in observed.events if isinstance(one, BranchRestarted)] == ["broadcast.1"]
    assert [one.job.args["n"] for one in watched.settled if isinstance(one.outcome, rj.Release)] == [2]
    assert sorted(n for _, n in slow.began) == [0, 1, 2, 2, *range(3, 10)]


@on_virtual_time
async def test_branches_come_and_go_while_it_runs():
    watched = Watched(numbered(30), 6)
    first, second = Runs(lambda _: 1.0), Runs(lambda _: 1.0)
    one, two = rj.branch(rj.enrich(first), rj.complete(), max_demand=1), rj.branch(rj.enrich(second), rj.complete(), max_demand=1)
    dispatch = rj.broadcast(one)
    async with runs(rj.pull(watched, max_demand=6).pipe(dispatch, rj.ack())) as observed:
        await asyncio.sleep(4.5)
        dispatch.add(two)
        await asyncio.sleep(10)
        dispatch.remove(one)
        await observed.running.wait()
    watched.hold_to_the_laws()
    assert len(watched.settled) == 30
    firsts, seconds = [n for _, n in first.began], [n for _, n in second.began]
    assert firsts == list(range(len(firsts)))
    assert seconds == list(range(5, 30))
    assert 14 <= len(firsts) <= 16


@on_virtual_time
async def test_the_result_of_a_job_is_that_of_the_branch_that_has_one():
    async def work(n: int) -> str:
        return f"result {n}"

    source = numbered(3, job_type(work))
    async with runs(rj.pull(source, max_demand=3).pipe(rj.broadcast(rj.complete(), rj.execute()), rj.ack())) as observed:
        await observed.running.wait()
    assert sorted(one.outcome.result for one in source.settled) == ["result 0", "result 1", "result 2"]
