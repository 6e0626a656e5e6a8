"""What takes minutes: `python -m pytest -m long -s`, or `make chaos`. Figures are printed."""

from __future__ import annotations

import asyncio
import math
import os

import pytest

from rxjobs.settings import Settings
from tests.chaos import away, checker, crowd, faults, slots, stops, volume
from tests.chaos.enqueuer import definitions
from tests.chaos.ground import DEFAULT, HEARTBEAT, LEADER, LEASE, RESCUE
from tests.chaos.ledger import now
from tests.chaos.loaded import enqueuing_both, judge, load, lost_attempts, shown
from tests.chaos.notifying import herd
from tests.chaos.test_away import Watch, is_quiet
from tests.chaos.test_crowd import argue
from tests.chaos.test_pause import toggle
from tests.numbers import HANG, at_least, at_most
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(1800)]


NUMBERS = {
    "again after a kill": LEASE + RESCUE + 1,
    "without a leader": 3 * LEADER,
    "awake until it noticed": HEARTBEAT,
    "five jobs after it": 3.0,
}
"""What the 99th percentile of a figure may be, seconds."""


def tell(ground):
    """Print what was measured, and compare it with its number."""
    for what, found in ground.figures.items():
        found.sort()
        p99 = checker.percentile(found, 0.99)
        shown(what, of=len(found), p50=checker.percentile(found, 0.5), p99=p99, longest=found[-1])
        at_most(what, p99, NUMBERS.get(what, math.inf), surely=math.inf)


async def test_two_hundred_kills_lose_nothing_and_double_nothing(ground, random):
    """F1, and F34: every tenth victim leads."""
    async with load(ground, 4, seconds=0.3):
        for number in range(200):
            await (faults.kill_leader if number % 10 == 5 else faults.kill)(ground, random)
            await asyncio.sleep(random.uniform(0.1, 0.4))
        shown("after the last", twenty_jobs=await ground.started(20, seconds=HANG))
    assert len(ground.died) >= 200
    ground.figures["again after a kill"] += checker.recovery(ground.attempts, ground.died)
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
    assert lease - Settings().heartbeat_seconds < again[0]
    at_most("begun again", again[-1], 40, surely=lease + Settings().rescue_seconds + HANG)
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
    """F14: CROWD_SECONDS of it, ten minutes else; and no two of all that is sent wait for each other in a circle."""
    await argue(ground, random, seconds=int(os.environ.get("CROWD_SECONDS", "600")))
    assert await crowd.deadlocks(ground) == 0


async def test_links_that_are_reset_for_two_minutes_and_go_silent_for_one_cost_no_job(ground, random):
    """F7, F8; LINKS_ROUNDS resets of all links, two seconds apart."""
    rounds = int(os.environ.get("LINKS_ROUNDS", "60"))
    async with load(ground, 3):
        assert all(worker.connections for worker in ground.alive)  # they are counted: no more than they may have, see checker.py
        before = now()
        await faults.reset(ground, random, rounds=rounds)
        rate = checker.throughput(ground.attempts, "default", before, now())
        assert await lost_attempts(ground) == 0
        await faults.blackhole(ground, random, seconds=rounds)
        back = await ground.started(20, seconds=HANG)
        shown("links", reset_rate=rate, twenty_jobs_after_silence=back)
    at_least("jobs a second while links are reset", rate, 0.7 * 60, surely=1)
    at_most("twenty jobs after silence", back, 3)


async def test_a_table_that_somebody_keeps_for_twenty_seconds_is_waited_for(ground, random):
    """F15."""
    async with load(ground, 3), definitions(ground.dsn) as app:
        locked = asyncio.create_task(faults.lock_table(ground, random, seconds=20))
        holds = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'rxjobs.live_jobs'::regclass AND mode LIKE 'AccessExc%')"
        await until(lambda: ground.value(holds))
        began = now()
        with pytest.raises(TimeoutError, match="somebody else has had locked"):
            await app.jobs.count()  # it may read the whole table, for longer than others
        in_vain = (now() - began) / 1e9
        await locked
        took = await ground.started(20, seconds=HANG)
    shown("after the lock", twenty_jobs=took, waited_in_vain=in_vain)
    at_most("waited in vain", in_vain, 5)
    at_most("twenty jobs after the lock", took, 2)
    assert await lost_attempts(ground) == 0


async def test_a_queue_that_is_paused_a_hundred_times_loses_nothing(ground, random):
    """F39."""
    await toggle(ground, random, times=100)


async def test_a_herd_of_ten_thousand_enqueues_a_second_has_twenty_sources_ask_seldom_and_not_in_vain():
    """F40: as many one by one as the machine can do."""
    found = await herd(clients=2, callers=200, sources=20, seconds=10.0)
    shown("a herd", **found)
    assert found["fetches of a source in 20 ms"] <= 1
    at_most("fetches in vain", found["in vain"], 0.05, surely=0.5)
    at_least("enqueues a second", found["enqueues a second"], 10_000, surely=0)


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
        took = await ground.started(20, seconds=HANG)
        shown("after ten minutes", twenty_jobs=took)
        at_most("twenty jobs after ten minutes", took, 3)
    await judge(ground)
    assert await lost_attempts(ground) == 0


async def test_a_million_jobs_take_no_memory(ground):
    """Row 18; VOLUME_JOBS of them."""
    many = int(os.environ.get("VOLUME_JOBS", "1000000"))
    growth = await volume.memory_between(ground, many // 10, many, seconds=1500)
    shown(f"from {many // 10:,} to {many:,} jobs", growth=growth, **{what: found[-1] for what, found in ground.figures.items()})
    assert growth < 20


async def test_claims_from_a_million_jobs_are_as_fast_as_from_ten_thousand(ground):
    """F45: mixed priorities, a hundred queues, half of them scheduled for later."""
    few, many = await volume.claim_times(ground, 10_000), await volume.claim_times(ground, 1_000_000)
    shown("claims, ms", p50_of_10_000=few[0], p99_of_10_000=few[1], p50_of_1_000_000=many[0], p99_of_1_000_000=many[1])
    assert many[0] < 10 * few[0]  # it does not grow with the backlog
    at_most("claims from a million, ms", many[1], 20, surely=1000)
    if "CHAOS_SHARED_BUFFERS" in os.environ:  # else the table does not fit, and what is read is the disk
        at_most("claims from a million against those from ten thousand", many[1] / few[1], 1.5, surely=100)
    waited = await volume.start_of_an_urgent_job(ground)
    shown("an urgent job beside a million", start=waited)
    at_most("an urgent job beside a million", waited, 1)


async def test_claims_do_not_wait_for_the_pruning_of_half_a_million_jobs(ground):
    """Row 44."""
    before, during, left = await volume.claims_beside_pruning(ground, 500_000)
    shown("claims, ms", p50=before[0], p99=before[1], p50_while_pruning=during[0], p99_while_pruning=during[1], left=left)
    assert left > 0, "it was over too soon to show anything"
    at_most("claims while jobs are pruned against those before", during[1] / before[1], 2, surely=100)


async def test_twenty_thousand_jobs_that_fail_together_do_not_come_back_together(ground):
    """F46."""
    found = await volume.storm(ground, 20_000, seconds=600)
    shown("20,000 failures at once", **found)
    assert found["most"] - found["least"] > 0.09 * found["least"]
    assert found["error_bytes"] < 64 * 1024
    assert found["healthy"] > 3
