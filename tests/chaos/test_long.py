"""What takes minutes: `python -m pytest -m long -s`, or `make chaos`. Figures are printed."""

from __future__ import annotations

import asyncio
import os

import pytest

from rxjobs.settings import Settings
from tests.chaos import away, checker, faults, slots, stops, volume
from tests.chaos.ground import DEFAULT
from tests.chaos.ledger import now
from tests.chaos.loaded import HANG, enqueuing_both, judge, load, lost_attempts, shown
from tests.chaos.test_away import Watch, is_quiet
from tests.chaos.test_crowd import argue

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(1800)]


def tell(ground):
    """Print what was measured."""
    for what, found in ground.figures.items():
        found.sort()
        shown(what, of=len(found), p50=checker.percentile(found, 0.5), p99=checker.percentile(found, 0.99), longest=found[-1])


async def test_two_hundred_kills_lose_nothing_and_double_nothing(ground, random):
    """F1, and F34: every tenth victim leads."""
    async with load(ground, 4, seconds=0.3):
        for number in range(200):
            await (faults.kill_leader if number % 10 == 5 else faults.kill)(ground, random)
            await asyncio.sleep(random.uniform(0.1, 0.4))
        shown("after the last", twenty_jobs=await ground.started(20, seconds=HANG))
    assert len(ground.died) >= 200
    tell(ground)


@pytest.mark.timeout(3600)
async def test_three_hundred_leaders_are_killed_when_slots_of_cron_are_due_and_every_slot_has_one_job(ground, random):
    """F34."""
    await slots.kill_leaders(ground, random, int(os.environ.get("CRON_KILLS", "300")))
    shown("slots of cron", kills=len(ground.died), slots=await slots.each_slot_once(ground))
    tell(ground)


async def test_the_jobs_of_a_killed_leader_run_again_after_a_lease_and_a_look_with_the_settings_that_nobody_has_changed(ground):
    """F1: a lease of 30 s, and a look for the dead every 5."""
    await ground.start(2, environ=DEFAULT)
    await ground.running(*[await faults.put(ground, "work", key=f"long/{n}", seconds=5.0) for n in range(30)])
    ground.kill(await ground.leader())
    await ground.drained(seconds=120)
    again = checker.recovery(ground.attempts, ground.died)
    shown("begun again", of=len(again), first=again[0], last=again[-1])
    lease = Settings().lease_seconds
    assert lease - Settings().heartbeat_seconds < again[0] <= again[-1] < lease + Settings().rescue_seconds + HANG
    assert not await ground.verdict()


async def test_a_hundred_leaders_that_were_stopped_for_three_leases_change_nothing(ground, random):
    """F3, F35."""
    async with load(ground, 3):
        for _ in range(100):
            await faults.pause(ground, random)
            await ground.started(5, seconds=HANG)
    tell(ground)


@pytest.mark.parametrize(
    "fault",
    [faults.restart_fast, faults.restart_immediate, faults.kill_backend, faults.kill_postmaster],
    ids=lambda one: one.__name__,
)
async def test_fifty_restarts_of_a_kind_cost_no_job(ground, random, fault):
    """F4."""
    async with load(ground, 3):
        for _ in range(50):
            await fault(ground, random)
            back = now()
            await ground.started(5, seconds=HANG)
            ground.figures["five jobs after it"].append((now() - back) / 1e9)
    assert await lost_attempts(ground) == 0
    tell(ground)


async def test_eight_who_ask_opposites_for_ten_minutes_are_all_served(ground, random):
    """F14: CROWD_SECONDS of it, ten minutes else."""
    await argue(ground, random, seconds=int(os.environ.get("CROWD_SECONDS", "600")))


async def test_a_thousand_answers_that_are_lost_change_nothing(ground, random):
    """F11."""
    async with load(ground, 3, rate=100.0):
        for _ in range(20):
            await faults.cut_acks(ground, random, times=50)
        await faults.cut_claims(ground, random, times=50)
        await ground.started(50, seconds=HANG)
    assert await ground.value("SELECT count(*) FROM rxjobs.finished_jobs WHERE state <> 'completed'") == 0
    assert await lost_attempts(ground) == 0


async def test_a_hundred_workers_with_long_jobs_are_stopped(ground):
    """F2, rows 27 and 66."""
    for _ in range(20):
        await stops.stop_with_long_jobs(ground, 5)
    tell(ground)


async def test_forty_workers_are_told_twice(ground):
    """F2."""
    for _ in range(20):
        await stops.stop_twice(ground, 2)
    tell(ground)


async def test_two_hundred_workers_are_stopped_while_they_start(ground, random):
    """Row 24: within 200 ms, and at any other moment of a start."""
    await stops.short_jobs(ground, 100)
    for _ in range(20):
        await stops.stop_while_starting(ground, [random.uniform(0.0, 0.2) for _ in range(10)])
    await stops.clear(ground)
    for _ in range(20):
        await stops.stop_while_starting(ground, [random.uniform(0.2, 4.0) for _ in range(5)])
    tell(ground)


async def test_two_hundred_workers_are_stopped_in_a_flood_of_notifications(ground):
    """Row 38."""
    for _ in range(40):
        await stops.stop_in_a_flood(ground, 5)
    tell(ground)


async def test_claims_are_in_flight_at_fifty_signals(ground, random):
    """Row 58."""
    for number in range(50):
        await stops.stop_with_a_claim_in_flight(ground, random, answer=("late", "lost")[number % 2])


@pytest.mark.parametrize("minutes", [10])
async def test_a_server_that_is_down_for_ten_minutes_is_waited_for_quietly(ground, random, minutes):
    """F5, row 4."""
    (worker,) = await ground.start()
    async with enqueuing_both(ground):
        pass
    await ground.drained()
    watch = Watch(worker)
    await away.stopped(ground, random, seconds=60 * minutes)
    is_quiet(watch)
    async with enqueuing_both(ground):
        shown("after ten minutes", twenty_jobs=await ground.started(20, seconds=HANG))
    await judge(ground)
    assert await lost_attempts(ground) == 0


async def test_a_million_jobs_take_no_memory(ground):
    """Row 18."""
    growth = await volume.memory_between(ground, 100_000, 1_000_000, seconds=1500)
    shown("from 100,000 to 1,000,000 jobs", growth=growth, **{what: found[-1] for what, found in ground.figures.items()})
    assert growth < 20


async def test_claims_from_a_million_jobs_are_as_fast_as_from_ten_thousand(ground):
    """F45: mixed priorities, a hundred queues, half of them scheduled for later."""
    few, many = await volume.claim_times(ground, 10_000), await volume.claim_times(ground, 1_000_000)
    shown("claims, ms", p50_of_10_000=few[0], p99_of_10_000=few[1], p50_of_1_000_000=many[0], p99_of_1_000_000=many[1])
    assert many[0] < 10 * few[0]  # it does not grow with the backlog; how fast it is, is shown
    waited = await volume.start_of_an_urgent_job(ground)
    shown("an urgent job beside a million", start=waited)
    assert waited < HANG


async def test_twenty_thousand_jobs_that_fail_together_do_not_come_back_together(ground):
    """F46."""
    found = await volume.storm(ground, 20_000, seconds=600)
    shown("20,000 failures at once", **found)
    assert found["most"] - found["least"] > 0.09 * found["least"]
    assert found["error_bytes"] < 64 * 1024
    assert found["healthy"] > 3
