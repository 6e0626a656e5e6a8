"""The jobs of one key keep their order and never overlap; keys do not wait for each other."""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from reactivex import operators as ops
from reactivex.subject import Subject

import rxjobs as rj
from rxjobs.awaiting import LoopScheduler
from rxjobs.declared import Pipeline
from rxjobs.event_stream import EventStream
from rxjobs.events import PipelineRestarted
from rxjobs.operators import turns
from rxjobs.runner import Running
from rxjobs.testing import MemorySource, a_job, job_type, marbles, virtually
from rxjobs.testing.watched import Watched, runs
from tests.operators.dispatched import Runs, a_type_of, taking
from tests.virtual import on_virtual_time

REFERENCE = int(os.environ.get("RXJOBS_REFERENCE_JOBS", "8000"))
"""Jobs of the reference scenario."""


def keyed(count: int, keys: int, runs_: Runs | None = None, **options: Any) -> MemorySource:
    definition = None if runs_ is None else a_type_of(runs_, **options)
    source = MemorySource(a_job(args={"n": n, "key": n % keys}, definition=definition) for n in range(count))
    source.close()
    return source


def case(job: rj.Job) -> int:
    """The key of a job of a marble diagram: a, b and c are of one, all others of another."""
    return 0 if job.args["letter"] in "abc" else 1


def test_jobs_of_one_key_follow_each_other_whatever_the_concurrency_and_keys_run_side_by_side():
    marbles(rj.partition(1, by=case, branch=taking(2, concurrency=9)), "(abxyc)-|", "--(AX)-(BY)-(C|)")


def test_a_slow_key_takes_one_place_and_holds_up_no_other_in_its_partition():
    async def work(job: rj.Job) -> None:
        await asyncio.sleep(9 if case(job) == 0 else 1)

    branch = rj.branch(rj.enrich(work, concurrency=2), rj.complete())
    marbles(rj.partition(1, by=case, branch=branch), "(abcxyz)-|", "-XYZ-----A--------B--------(C|)")


def test_what_is_finished_passes_and_lists_are_taken_one_by_one():
    marbles(rj.partition(3, by=case, branch=taking(1)), "[aBx]-|", "B(AX)|")


def test_a_key_may_be_named():
    values = {"a": a_job(args={"user": {"id": 1}}), "b": a_job(args={"user": {"id": 1}}), "c": a_job(args={"user": {"id": 2}})}
    marbles(rj.partition(1, by="args.user.id", branch=taking(1, concurrency=9)), "(abc)|", "-(AC)(B|)", values=values)


@pytest.mark.parametrize("by", [lambda job: job.args["missing"], lambda job: job.args], ids=["raises", "no key"])
def test_a_key_function_that_fails_settles_that_one_job(by):
    def some(job: rj.Job) -> Any:
        return by(job) if job.args["letter"] == "a" else 1

    (failed, _) = marbles(rj.partition(2, by=some, branch=taking(1)), "ab|", "A-(B|)", values={"A": rj.Retry, "B": rj.Complete})
    assert failed.outcome.failure.type in ("KeyError", "TypeError")


@on_virtual_time
async def test_the_order_of_claims_holds_behind_stages_that_change_it():
    keyed_runs = Runs(lambda job: (job.args["n"] * 7 % 5) / 10)
    watched = Watched(keyed(300, 9, keyed_runs), 60)

    async def look_up(job: rj.Job) -> dict[str, Any]:
        await asyncio.sleep((job.args["n"] * 13 % 11) / 10)
        return {}

    stream = rj.pull(watched, max_demand=60).pipe(
        rj.filter(lambda job: job.args["n"] % 10),
        rj.enrich(look_up, concurrency=20),
        rj.partition(4, by="args.key", branch=rj.execute(concurrency=5)),
        rj.ack(),
    )
    async with runs(stream) as observed:
        await observed.running.wait()
    watched.hold_to_the_laws()
    observed.hold_to_the_laws()
    for key in range(9):
        assert keyed_runs.of(key) == [n for n in range(300) if n % 9 == key and n % 10]
    assert not keyed_runs.overlaps
    assert keyed_runs.most > 5


@on_virtual_time
async def test_a_job_that_never_arrives_is_waited_for_until_it_has_ended():
    done = Runs()
    source = keyed(4, 1, done)

    async def look_up(job: rj.Job) -> Any:
        await asyncio.sleep(5 if job.args["n"] == 0 else 0)
        return rj.Cancel("not wanted") if job.args["n"] == 0 else {}

    stages = rj.enrich(look_up), rj.partition(2, by="args.key", branch=rj.execute()), rj.ack()
    async with runs(rj.pull(source, max_demand=4).pipe(*stages)) as observed:
        await asyncio.sleep(4)
        assert done.began == []
        await observed.running.wait()
    assert done.of(0) == [1, 2, 3]


@on_virtual_time
async def test_a_key_that_depends_on_what_stages_add_is_known_when_its_job_arrives():
    done = Runs(lambda _: 1.0, key=lambda job: job.assigns["tenant"])
    source = keyed(12, 4, done)

    async def look_up(job: rj.Job) -> Any:
        return {"tenant": job.args["key"] % 2}

    stages = rj.enrich(look_up), rj.partition(2, by=lambda job: job.assigns["tenant"], branch=rj.execute()), rj.ack()
    async with runs(rj.pull(source, max_demand=12).pipe(*stages)) as observed:
        await observed.running.wait()
    assert not done.overlaps
    assert len(done.began) == 12
    assert done.most == 2


@pytest.mark.parametrize("strict", [False, True])
@on_virtual_time
async def test_keys_do_not_overlap_through_restarts_of_branch_and_pipeline(strict):
    """What was in flight runs on: the next of its key waits for it, in the new subscription."""
    slow = Runs(lambda _: 5.0)
    watched = Watched(keyed(30, 3, slow), 12)
    left = {"in": [4], "out": [7]}

    def break_once(where: str) -> Any:
        def look(item: Any) -> Any:
            job = item if isinstance(item, rj.Job) else item.job
            if job.args["n"] in left[where]:
                left[where].clear()
                raise RuntimeError(where)
            return item

        return ops.map(look)

    branch = rj.branch(break_once("in"), rj.execute(concurrency=9))
    stream = rj.pull(watched, max_demand=12).pipe(
        rj.partition(2, by="args.key", branch=branch, strict=strict), break_once("out"), rj.ack()
    )
    async with runs(stream) as observed:
        await observed.running.wait()
    watched.hold_to_the_laws()
    assert sum(isinstance(one, PipelineRestarted) for one in observed.events) == 1
    assert not slow.overlaps
    assert sorted(n for _, n in slow.began) == list(range(30))
    if strict:
        assert all(slow.of(key) == sorted(slow.of(key)) for key in range(3))


class Troubled(Runs):
    """Every fourth job of a key fails, is snoozed or released first."""

    def __init__(self) -> None:
        self.troubled = set[int]()
        self.ended: list[tuple[int, int]] = []
        super().__init__(lambda _: 0.1, self._trouble)

    def _trouble(self, job: rj.Job) -> Any:
        n, key = job.args["n"], job.args["key"]
        if n % 4 == 0 and n not in self.troubled:
            self.troubled.add(n)
            return [rj.Retry(delay=7), rj.Snooze(20), rj.Release(3)][n % 3]
        self.ended.append((key, n))
        return None


@on_virtual_time
async def test_strict_keeps_the_order_of_a_key_through_retries_and_costs_no_attempt():
    troubled = Troubled()
    watched = Watched(keyed(120, 5, troubled), 40)
    stream = rj.pull(watched, max_demand=40).pipe(
        rj.partition(3, by="args.key", branch=rj.execute(concurrency=4), strict=True), rj.ack()
    )
    async with runs(stream) as observed:
        await observed.running.wait()
    watched.hold_to_the_laws()
    observed.hold_to_the_laws()
    for key in range(5):
        assert [n for one, n in troubled.ended if one == key] == [n for n in range(120) if n % 5 == key]
    attempts = {one.job.args["n"]: one.job.attempt for one in watched.settled if isinstance(one.outcome, rj.Complete)}
    assert set(attempts.values()) == {1, 2}
    assert {n for n, attempt in attempts.items() if attempt == 2} == set(range(0, 120, 12))


@on_virtual_time
async def test_without_strict_later_jobs_of_a_key_pass_one_that_is_to_be_retried():
    troubled = Troubled()
    watched = Watched(keyed(20, 1, troubled), 20)
    stream = rj.pull(watched, max_demand=20).pipe(rj.partition(3, by="args.key", branch=rj.execute()), rj.ack())
    async with runs(stream) as observed:
        await observed.running.wait()
    assert [n for _, n in troubled.ended][:3] == [1, 2, 3]
    assert not troubled.overlaps


@on_virtual_time
async def test_other_keys_do_not_notice_what_strict_holds_back():
    def end(job: rj.Job) -> Any:
        return rj.Snooze(500) if job.args["key"] == 0 and job.attempt == 1 and not waited else None

    waited = list[int]()
    done = Runs(end=end)
    source = keyed(100, 2, done)
    stages = rj.partition(1, by="args.key", branch=rj.execute(), strict=True), rj.ack()
    async with runs(rj.pull(source, max_demand=10).pipe(*stages)) as observed:
        await asyncio.sleep(100)
        assert done.of(0) == [0]
        assert done.of(1) == list(range(1, 100, 2))
        waited.append(1)
        await observed.running.wait()
    assert done.of(0) == [0, *range(0, 100, 2)]


@on_virtual_time
async def test_strict_does_not_wait_for_ever_for_a_job_that_does_not_come_back():
    done = Runs(end=lambda job: rj.Snooze(5) if job.args["n"] == 0 else None)

    class Cancelled(MemorySource):
        """Somebody cancels what is snoozed."""

        async def settle(self, finished: Any) -> None:
            gone = [one for one in finished if isinstance(one.outcome, rj.Snooze)]
            await super().settle([one for one in finished if one not in gone])

    definition = a_type_of(done)
    source = Cancelled(a_job(args={"n": n, "key": 1}, definition=definition) for n in range(3))
    stages = rj.partition(1, by="args.key", branch=rj.execute(), strict=True), rj.ack()
    async with runs(rj.pull(source, max_demand=10).pipe(*stages)):
        await asyncio.sleep(60)
        assert done.of(1) == [0]
        await asyncio.sleep(turns.PATIENCE)
        assert done.of(1) == [0, 1, 2]


@on_virtual_time
async def test_what_strict_remembers_is_bounded(monkeypatch, caplog):
    monkeypatch.setattr(turns, "MOST_AWAY", 50)
    source = MemorySource(
        a_job(args={"n": n, "key": n}, definition=a_type_of(Runs(end=lambda _: rj.Snooze(30)))) for n in range(80)
    )
    found = list[turns.Turns]()
    watched = turns.Turns.watch

    def watch(self: turns.Turns, ledger: Any) -> None:
        found.append(self)
        watched(self, ledger)

    monkeypatch.setattr(turns.Turns, "watch", watch)
    stages = rj.partition(4, by="args.key", branch=rj.execute(), strict=True), rj.ack()
    async with runs(rj.pull(source, max_demand=80).pipe(*stages)):
        await asyncio.sleep(10)
        assert found[0].away == 50
    assert "more than 50 jobs are to come back" in caplog.text


@on_virtual_time
async def test_nothing_is_remembered_of_keys_that_have_no_jobs():
    found = list[turns.Turns]()
    done = Troubled()
    watched = turns.Turns.watch

    def watch(self: turns.Turns, ledger: Any) -> None:
        found.append(self)
        watched(self, ledger)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns.Turns, "watch", watch)
        stages = rj.partition(4, by="args.key", branch=rj.execute(), strict=True), rj.ack()
        async with runs(rj.pull(keyed(200, 50, done), max_demand=40).pipe(*stages)) as observed:
            await observed.running.wait()
    assert found[0].away == found[0].held == 0
    assert not found[0].busy


def test_two_partitions_may_be_inside_each_other():
    inner = rj.partition(2, by=lambda job: job.args["letter"] in "xz", branch=taking(1, concurrency=9))
    marbles(rj.partition(2, by=case, branch=rj.branch(inner, max_demand=9)), "(abxz)--|", "-(AX)(BZ)|")


def test_a_buffer_that_could_never_be_full_in_its_branch_is_refused_when_the_pipeline_is_declared():
    branch = rj.branch(rj.buffer(10, None), rj.execute_batch(print), max_demand=9)
    with pytest.raises(rj.InvalidOption, match=r"rj.buffer\(10, None\) waits for 10 jobs, but its source holds 9 at most"):
        rj.pull(MemorySource(), max_demand=50).pipe(rj.partition(2, by="args.key", branch=branch))


@on_virtual_time
async def test_a_buffer_without_a_timespan_in_a_branch_does_not_wait_for_jobs_that_wait_for_its_own():
    lists = list[int]()
    watched = Watched(keyed(30, 2, Runs()), 8)
    branch = rj.branch(rj.buffer(5, None), rj.execute_batch(lambda jobs: lists.append(len(jobs))), max_demand=5)
    async with runs(rj.pull(watched, max_demand=8).pipe(rj.partition(1, by="args.key", branch=branch), rj.ack())) as observed:
        await observed.running.wait()
    watched.hold_to_the_laws()
    assert sum(lists) == 30
    assert max(lists) == 2  # of each key there is one at most


@on_virtual_time
async def test_what_is_for_a_branch_that_has_ended_by_itself_is_dropped_and_that_is_noticed(caplog):
    watched = Watched(keyed(4, 1, Runs()), 4)
    stages = rj.partition(2, by="args.key", branch=rj.branch(ops.take(1), rj.execute())), rj.ack()
    async with runs(rj.pull(watched, max_demand=4).pipe(*stages), grace=0):
        await asyncio.sleep(2)
        ends = [(type(one.outcome), getattr(one.outcome, "delay", None)) for one in watched.settled]
        assert ends == [(rj.Complete, None), *[(rj.Release, 5.0)] * 3]
    watched.hold_to_the_laws()
    assert "was dropped by an operator of its pipeline" in caplog.text


class Made:
    """A source that makes its jobs as it is asked for them, and keeps none; of sixteen keys, one has few jobs, which are slow."""

    KEYS, SLOW, SLOW_JOBS = 16, 3, 50

    def __init__(self, count: int) -> None:
        self.count = count
        self.made = self.settled = self.most_held = self.most_asked_beyond = 0
        self.wakes: Subject[object] = Subject()
        self._definition = job_type(self._work)
        self.next = {key: self._numbers(key) for key in range(self.KEYS)}
        """By key, the numbers of the jobs that are to begin, in order."""
        self.now = set[int]()
        self.others_ended_at = 0.0

    def key(self, n: int) -> int:
        return self.SLOW if n % (self.count // self.SLOW_JOBS) == 0 else n % self.KEYS if n % self.KEYS != self.SLOW else 0

    def _numbers(self, key: int) -> Iterator[int]:
        return (n for n in range(self.count) if self.key(n) == key and wanted(n))

    async def fetch(self, n: int) -> list[rj.Job]:
        numbers = range(self.made, min(self.count, self.made + n))
        self.made += len(numbers)
        self.most_held = max(self.most_held, self.made - self.settled)
        return [a_job(definition=self._definition, args={"n": n, "key": self.key(n)}, attempt=1) for n in numbers]

    async def settle(self, finished: list[rj.Finished]) -> None:
        assert all(isinstance(one.outcome, rj.Complete if wanted(one.job.args["n"]) else rj.Cancel) for one in finished)
        self.settled += len(finished)
        if self.settled == self.count:
            self.wakes.on_completed()

    async def _work(self, n: int, key: int) -> None:
        assert rj.current_job().assigns == {"double": 2 * n}
        assert next(self.next[key]) == n
        assert key not in self.now
        self.now.add(key)
        await asyncio.sleep(0.5 if key == self.SLOW else 0.001 * (n % 3))
        self.now.remove(key)
        if key != self.SLOW:
            self.others_ended_at = asyncio.get_running_loop().time()


def wanted(n: int) -> bool:
    return n % 10 != 9


async def reference(count: int) -> None:
    """Many jobs through a long pipeline."""
    source, random_, sizes = Made(count), random.Random(7), list[int]()

    async def double(job: rj.Job) -> dict[str, int]:
        await asyncio.sleep(random_.random() * 0.01)
        return {"double": 2 * job.args["n"]}

    stream = rj.pull(source, max_demand=200).pipe(
        rj.filter(lambda job: wanted(job.args["n"]), otherwise=rj.Cancel("every tenth")),
        rj.enrich(double, concurrency=40),
        rj.partition(16, by="args.key", branch=rj.execute(concurrency=5)),
        rj.ack(),
    )
    running = Running(
        [Pipeline("reference", stream)], LoopScheduler(asyncio.get_running_loop()), EventStream(), max_restarts=0, restart_window=1
    )
    running.start()
    waiting = asyncio.create_task(running.wait())
    for quarter in (1, 3):
        while source.settled < count * quarter // 4:
            await asyncio.wait([waiting], timeout=0.01)
        gc.collect()
        sizes.append(len(gc.get_objects()))
    await waiting
    await running.stop(1)
    assert source.settled == source.made == count
    assert all(next(numbers, None) is None for numbers in source.next.values())
    assert source.most_held <= 200
    assert source.others_ended_at < asyncio.get_running_loop().time() / 2 or count > 50_000
    assert sizes[1] - sizes[0] < 5_000, f"of {count} jobs a quarter left {sizes[0]} objects in memory, three quarters {sizes[1]}"


def test_many_jobs_of_sixteen_keys_of_which_one_is_slow_keep_order_demand_and_memory():
    virtually(reference(REFERENCE))
