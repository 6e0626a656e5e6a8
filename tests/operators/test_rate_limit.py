"""A token bucket, or one for each key."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections import Counter
from typing import Any
from uuid import uuid4

import pytest
import reactivex as rx
from reactivex import operators as ops
from reactivex.subject import Subject

import rxjobs as rj
from rxjobs.awaiting import LoopScheduler
from rxjobs.operators.keys import key_of
from rxjobs.operators.rate_limit import LONGEST, Rate
from rxjobs.source import Control
from rxjobs.testing import MemorySource, a_job, marbles
from rxjobs.testing.watched import Watched, runs
from tests.virtual import on_virtual_time


def jobs_of(*tenants: str, **fields: Any) -> list[rj.Job]:
    return [a_job(args={"tenant": tenant}, **fields) for tenant in tenants]


def passed(source: Any, limit: Any, seen: list[tuple[float, Any]], **demand: int) -> rx.Observable[Any]:
    """A pipeline that notes when which tenant's job has passed its limit."""
    loop = asyncio.get_running_loop()

    def note(item: Any) -> None:
        if isinstance(item, rj.Job):
            seen.append((round(loop.time(), 3), item.args["tenant"]))

    return rj.pull(source, **demand).pipe(limit, ops.do_action(note), rj.complete(), rj.ack())


def test_as_many_as_the_burst_pass_at_once_and_then_one_each_time_a_token_comes():
    marbles(rj.rate_limit(1, per=2, burst=2), "(abcd)------|", "(ab)-c-d--|")


def test_the_burst_is_by_default_as_much_as_passes_in_one_period():
    marbles(rj.rate_limit(2, per=4), "(abcd)--------|", "(ab)-c-d----|")


def test_a_burst_may_be_smaller_than_what_passes_in_one_period():
    marbles(rj.rate_limit(2, per=4, burst=1), "(abc)-------|", "a-b-c---|")


def test_a_pause_saves_up_no_more_than_the_burst():
    marbles(rj.rate_limit(1, per=2, burst=2), "(ab)--------------(cdef)------|", "(ab)--------------(cd)-e-f--|")


def test_what_is_finished_does_not_wait():
    marbles(rj.rate_limit(1, per=3), "(abC)-----|", "(aC)--b--|")


def test_it_completes_once_what_waits_has_passed():
    marbles(rj.rate_limit(1, per=3), "(abc)|", "a--b--(c|)")


def test_an_error_does_not_wait():
    marbles(rj.rate_limit(1, per=3), "(ab)-#", "a-#")


def test_lists_are_taken_one_by_one():
    marbles(rj.rate_limit(1, per=2), "[ab]|", "a-(b|)")


def test_keys_do_not_wait_for_each_other():
    by_key = {"by": "args.tenant", "per": 4, "n": 1}
    values = dict(zip("abcd", jobs_of("x", "x", "y", "y"), strict=True))
    marbles(rj.rate_limit(**by_key), "(abcd)-----|", "(ac)---(bd)-|", values=values)


def test_a_key_that_cannot_be_told_is_a_failed_attempt_of_that_job():
    def by(job: rj.Job) -> Any:
        return [1] if job.args else 1 / 0

    (a, b) = marbles(
        rj.rate_limit(1, by=by), "ab|", "AB|", values={"a": a_job(args={"n": 1}), "b": a_job(), "A": rj.Retry, "B": rj.Retry}
    )
    assert [one.outcome.failure.type for one in (a, b)] == ["TypeError", "ZeroDivisionError"]


@pytest.mark.parametrize(
    ("by", "fields", "key"),
    [
        ("args.tenant", {"args": {"tenant": 7}}, 7),
        ("args.user.id", {"args": {"user": {"id": 3}}}, 3),
        ("args.tenant", {}, None),
        ("meta.tenant", {"meta": {"tenant": "x"}}, "x"),
        ("queue", {"queue": "mail"}, "mail"),
        ("tags", {"tags": ["a", "b"]}, ("a", "b")),
    ],
)
def test_a_dotted_name_finds_what_a_job_carries(by, fields, key):
    assert key_of("rate_limit", by)(a_job(**fields)) == key


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n is a whole number of at least 1, not 0"),
        ({"n": 1.5}, "n is a whole number of at least 1, not 1.5"),
        ({"n": 1, "per": 0}, "per is a number of seconds above 0, not 0"),
        ({"n": 1, "per": True}, "not True"),
        ({"n": 1, "per": float("nan")}, "not nan"),
        ({"n": 1, "burst": 0}, "burst is a whole number of at least 1, not 0"),
        ({"n": 1, "by": 5}, 'by is a function of a job, or a name such as "args.tenant", not 5'),
        ({"n": 1, "by": "tenant"}, "beginning with one of args, assigns, .* not 'tenant'"),
        ({"n": 1, "by": "args"}, "not 'args'"),
        ({"n": 1, "by": "args..x"}, "not 'args..x'"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(rj.InvalidOption, match=message):
        rj.rate_limit(**options)


@on_virtual_time
async def test_it_waits_without_spinning():
    """One timer for each token, however many jobs wait: the loop does nothing else."""
    source, seen = Watched(MemorySource(jobs_of(*"x" * 50)), 50), list[tuple[float, Any]]()
    loop = asyncio.get_running_loop()
    timers = Counter[float]()
    call_later = loop.call_later

    def counted(delay: float, *args: Any, **kwargs: Any) -> Any:
        timers[round(loop.time() + delay, 3)] += 1
        return call_later(delay, *args, **kwargs)

    loop.call_later = counted
    async with runs(passed(source, rj.rate_limit(1, per=10, burst=1), seen, max_demand=50)):
        await asyncio.sleep(101)
    assert [at for at, _ in seen] == [10 * n for n in range(11)]
    waits = {at: count for at, count in timers.items() if at % 10 == 0}
    assert set(waits.values()) == {1}, waits


@on_virtual_time
async def test_a_key_with_many_jobs_does_not_keep_those_of_others_from_being_fetched():
    """Two hundred jobs of one tenant stand before the first of another, and twenty are held at most."""
    source, seen = Watched(MemorySource(jobs_of(*"x" * 200, "y", "z")), 20), list[tuple[float, Any]]()
    async with runs(passed(source, rj.rate_limit(1, per=1, by="args.tenant"), seen, max_demand=20)) as observed:
        await asyncio.sleep(5)
        others = [(at, tenant) for at, tenant in seen if tenant != "x"]
        assert [tenant for _, tenant in others] == ["y", "z"]
        assert max(at for at, _ in others) < 1
        await asyncio.sleep(60)
    source.hold_to_the_laws()
    observed.never_broke()
    times = [at for at, tenant in seen if tenant == "x"]
    # what was given back came when it was its turn: the rate was kept, and made use of
    assert len(times) >= 60
    assert all(later - earlier >= 0.999 for earlier, later in itertools.pairwise(times))
    assert all(one.job.attempt == 1 for one in source.settled)


@on_virtual_time
async def test_keys_that_wait_share_the_places_for_waiting():
    source, seen = Watched(MemorySource(jobs_of(*"xy" * 100)), 20), list[tuple[float, Any]]()
    async with runs(passed(source, rj.rate_limit(1, per=1, by="args.tenant"), seen, max_demand=20)):
        await asyncio.sleep(30.5)
    source.hold_to_the_laws()
    counts = Counter(tenant for _, tenant in seen)
    assert min(counts.values()) >= 30
    assert max(counts.values()) <= 31


@on_virtual_time
async def test_however_many_keys_wait_there_is_room_to_fetch_those_of_others():
    """Thirty tenants have more than they may, and twenty jobs are held at most."""
    tenants = [f"t{n}" for n in range(30)]
    source, seen = Watched(MemorySource(jobs_of(*tenants * 5, "last")), 20), list[tuple[float, Any]]()
    async with runs(passed(source, rj.rate_limit(1, per=100, by="args.tenant"), seen, max_demand=20)):
        await asyncio.sleep(1)
        assert sorted(tenant for _, tenant in seen) == sorted([*tenants, "last"])
        assert source._held <= 10
    source.hold_to_the_laws()


@on_virtual_time
async def test_without_a_key_what_waits_holds_its_place_and_nothing_more_is_fetched():
    source, seen = Watched(MemorySource(jobs_of(*"x" * 100)), 10), list[tuple[float, Any]]()
    async with runs(passed(source, rj.rate_limit(1, per=1, burst=1), seen, max_demand=10)):
        await asyncio.sleep(20.5)
        assert len(seen) == 21
        assert source.most_held == 10
        assert {type(one.outcome) for one in source.settled} == {rj.Complete}
    source.hold_to_the_laws()


@on_virtual_time
async def test_when_it_is_stopped_what_waits_is_given_back_at_once():
    source, seen = MemorySource(jobs_of(*"x" * 10)), list[tuple[float, Any]]()
    loop = asyncio.get_running_loop()
    async with runs(passed(source, rj.rate_limit(1, per=60), seen, max_demand=10), grace=1000) as observed:
        await asyncio.sleep(1)
        stopped = loop.time()
    assert loop.time() - stopped < 1
    observed.hold_to_the_laws()
    assert len(seen) == 1
    assert [type(one.outcome) for one in source.settled] == [rj.Complete] + [rj.Release] * 9
    assert {one.outcome.reason for one in source.settled[1:]} == {"its pipeline was stopped before it could begin"}


@on_virtual_time
async def test_a_job_that_comes_late_to_a_pipeline_which_stops_is_given_back_too():
    """A stage before it still works on some when the pipeline is stopped."""

    async def slowly(job: rj.Job) -> None:
        await asyncio.sleep(10)

    source = MemorySource(jobs_of("x", "x"))
    pipeline = rj.pull(source, max_demand=10).pipe(rj.enrich(slowly), rj.rate_limit(1, per=600), rj.complete(), rj.ack())
    async with runs(pipeline, grace=100) as observed:
        await asyncio.sleep(1)
    observed.hold_to_the_laws()
    assert [type(one.outcome) for one in source.settled] == [rj.Complete, rj.Release]


@on_virtual_time
async def test_when_it_is_killed_what_waits_is_released():
    source, seen = MemorySource(jobs_of(*"x" * 5)), list[tuple[float, Any]]()
    scheduler = LoopScheduler(asyncio.get_running_loop())
    subscription = passed(source, rj.rate_limit(1, per=60), seen, max_demand=10).subscribe(scheduler=scheduler)
    await asyncio.sleep(1)
    subscription.dispose()
    await asyncio.sleep(1)
    assert [type(one.outcome) for one in source.settled] == [rj.Complete] + [rj.Release] * 4


class Steered(MemorySource):
    """A source that is paused, resumed and scaled as a queue is."""

    def __init__(self, jobs: list[rj.Job]) -> None:
        super().__init__(jobs)
        self.controls: Subject[Control] = Subject()


@on_virtual_time
async def test_what_waits_goes_back_when_its_queue_is_paused_and_the_others_keep_their_turn():
    paused, other = Steered(jobs_of(*"x" * 5)), MemorySource(jobs_of(*"y" * 5))
    seen = list[tuple[float, Any]]()
    streams = rx.merge(rj.pull(paused, max_demand=5), rj.pull(other, max_demand=5))
    async with runs(streams.pipe(rj.rate_limit(1, per=1), rj.tap(lambda job: seen.append(job)), rj.complete(), rj.ack())):
        await asyncio.sleep(0.5)
        paused.controls.on_next(Control(is_paused=True))
        await asyncio.sleep(0.1)
        assert [one.outcome.reason for one in paused.settled if one.outcome != rj.Complete()] == ["its queue is paused"] * 4
        await asyncio.sleep(10)
        assert len(other.settled) == 5
        paused.controls.on_next(Control())
        await asyncio.sleep(10)
    assert sum(one.outcome == rj.Complete() for one in paused.settled) == 5


@on_virtual_time
async def test_a_pipeline_that_breaks_and_begins_anew_is_no_faster():
    source = MemorySource(jobs_of(*"x" * 20))
    fails = iter([False] * 3 + [True] + [False] * 100)

    def fail(item: Any) -> Any:
        if isinstance(item, rj.Job) and next(fails):
            raise RuntimeError("broken")
        return item

    stream = rj.pull(source, max_demand=20).pipe(rj.rate_limit(1, per=4, burst=2), ops.map(fail), rj.complete(), rj.ack())
    async with runs(stream):
        await asyncio.sleep(20.5)
    done = sum(isinstance(one.outcome, rj.Complete) for one in source.settled)
    assert done == 6  # two at once, then one each four seconds, of which one broke it


@on_virtual_time
async def test_memory_is_bounded_by_the_keys_of_late():
    """Ten thousand tenants, one job each: their buckets are forgotten once they are full."""
    source, made = MemorySource(), list[Rate]()
    pipeline = rj.pull(source, max_demand=100).pipe(rj.rate_limit(1, per=2, by="args.tenant"), rj.complete(), rj.ack())
    most = 0
    gc.collect()  # what other tests have left
    async with runs(pipeline):
        for n in range(200):
            source.push(*jobs_of(*(f"{n}-{place}" for place in range(50))))
            await asyncio.sleep(0.1)
            made = made or [one for one in gc.get_objects() if type(one) is Rate and len(one)]  # isinstance would ask proxies
            most = max(most, len(made[0]))
        await asyncio.sleep(10)
        assert len(source.settled) == 10_000
        assert len(made[0]) == 0
    assert most <= 50 * 10 * 2 * 2.5  # tenants a second, for twice the two seconds that a bucket takes to be full


def test_a_bucket_holds_no_more_than_its_burst_whatever_the_clock_does():
    rate = Rate(2, 1.0, 3)
    for _ in range(3):
        assert rate.wait("k", 100.0) == 0
        rate.take("k", 100.0)
    assert rate.wait("k", 100.0) == pytest.approx(0.5)
    assert rate.wait("k", 1e9) == 0
    rate.take("k", 1e9)
    rate.take("k", 1e9)
    rate.take("k", 1e9)
    assert rate.wait("k", 1e9) == pytest.approx(0.5)


def test_turns_are_promised_one_after_the_other():
    rate = Rate(1, 2.0, 1)
    rate.take("k", 0.0)
    assert [rate.promise("k", 3, 0.0) for _ in range(3)] == [8.0, 10.0, 12.0]
    assert rate.forget(5.0) == 1
    assert rate.forget(13.0) == 0


@on_virtual_time
async def test_a_job_is_given_back_for_an_hour_at_most():
    """The rate may be another by then."""
    source, seen = MemorySource(jobs_of(*"x" * 5)), list[tuple[float, Any]]()
    async with runs(passed(source, rj.rate_limit(1, per=100_000, by="args.tenant"), seen, max_demand=2)):
        await asyncio.sleep(1)
        back = [one.outcome for one in source.settled if isinstance(one.outcome, rj.Release)]
        assert back
        assert {one.delay for one in back} == {LONGEST}


@on_virtual_time
async def test_what_waits_is_released_when_its_node_is_cut_off():
    source = MemorySource([a_job(node=uuid4()) for _ in range(4)])
    async with runs(rj.pull(source, max_demand=10).pipe(rj.rate_limit(1, per=60), rj.complete(), rj.ack())) as observed:
        await asyncio.sleep(1)
        before = len(source.settled)
        observed.running.cut_off()
        await asyncio.sleep(0)
        await asyncio.sleep(1)
        reasons = [one.outcome.reason for one in source.settled[before:4]]
        assert reasons == ["its node was cut off"] * (4 - before)
        assert reasons
