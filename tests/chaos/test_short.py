"""One round of each fault, under load, judged by what the workers wrote down and by what the table says."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos import checker, faults, slots
from tests.chaos.ground import HEARTBEAT, LEADER, LEASE, POLL, RESCUE
from tests.chaos.ledger import now
from tests.chaos.loaded import load, lost_attempts, shown
from tests.numbers import at_least, at_most

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]


async def test_the_server_keeps_what_it_has_promised(ground):
    """What is found out here is worth nothing on a server that may lose commits by itself."""
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        assert await ground.value(f"SHOW {setting}") == "on"


async def test_twenty_kills_at_random_phases_lose_nothing_and_double_nothing(ground, random):
    """F1, and F34: the leader is among the victims."""
    async with load(ground, 4, seconds=0.3):
        for number in range(20):
            await (faults.kill_leader if number % 10 == 5 else faults.kill)(ground, random)
            await asyncio.sleep(random.uniform(0.1, 0.4))
        await ground.started(20)
    took = checker.recovery(ground.attempts, ground.died)
    shown("again after a kill", of=len(took), p50=checker.percentile(took, 0.5), p99=checker.percentile(took, 0.99))
    shown("without a leader", longest=max(ground.figures["without a leader"]))
    assert len(ground.died) >= 20
    assert took
    at_most("again after a kill", checker.percentile(took, 0.99), LEASE + RESCUE + 1)
    at_most("without a leader", max(ground.figures["without a leader"]), 3 * LEADER)


async def test_a_leader_that_was_stopped_for_three_leases_changes_nothing_when_it_wakes(ground, random):
    """F3 and F35. One that was stopped between two jobs has nothing to change: then another is."""
    async with load(ground, 2, seconds=0.3):
        for _ in range(5):
            stopped = await ground.leader()
            await faults.pause(ground, random)
            await ground.started(20)
            if "is not this node's any more" in stopped.log:
                break
    shown("awake until it noticed", longest=max(ground.figures["awake until it noticed"]))
    at_most("awake until it noticed", max(ground.figures["awake until it noticed"]), HEARTBEAT)
    assert "is not this node's any more" in stopped.log
    assert await lost_attempts(ground) > 0


@pytest.mark.timeout(300)
async def test_every_slot_of_cron_has_one_job_whoever_is_killed_when_it_is_due(ground, random):
    """F34: by nodes whose clocks jump; test_long.py kills three hundred."""
    await slots.kill_leaders(ground, random, 4)
    assert await slots.each_slot_once(ground) > 4
    assert len(ground.died) == 4


@pytest.mark.parametrize(
    "fault", [faults.restart_fast, faults.restart_immediate, faults.kill_backend], ids=lambda fault: fault.__name__
)
async def test_a_server_that_restarts_costs_no_job(ground, random, fault):
    """F4."""
    async with load(ground, 2):
        await fault(ground, random)
        took = await ground.started(1)
    shown(fault.__name__, first_job=took)
    at_most("first job", took, 3)
    assert await lost_attempts(ground) == 0


async def test_links_that_are_reset_go_silent_or_lose_their_notifications_cost_no_job(ground, random):
    """F7, F8, F9."""
    async with load(ground, 3):
        before = now()
        await faults.reset(ground, random, rounds=3)
        rate = checker.throughput(ground.attempts, "default", before, now())
        at_least("jobs a second while links are reset", rate, 0.7 * 60, surely=0.2)
        assert await lost_attempts(ground) == 0
        await faults.blackhole(ground, random)
        healed = now()
        back = await ground.started(20)
        silent = await ground.value("SELECT now()")
        await faults.blackhole_listen(ground, random, seconds=3.0)
        late = await ground.value(
            "SELECT percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM attempted_at - scheduled_at))::float8 "
            "FROM rxjobs.finished_jobs WHERE type = 'work' AND attempt = 1 AND inserted_at > $1",
            silent,
        )
        shown("links", reset_rate=rate, back_after_silence=back, start_p99_without_notifications=late)
        at_most("back after silence", back, 3)
        at_most("start without notifications", late, POLL + 0.5)
    assert healed


@pytest.mark.parametrize("fault", [faults.slow_links, faults.narrow_links], ids=lambda fault: fault.__name__)
async def test_links_that_are_slow_cost_no_lease(ground, random, fault):
    """F10: 200 ms each way, and 10 kB a second."""
    async with load(ground, 3, environ={"RXJOBS_LEASE_SECONDS": "10"}):
        before = now()
        await fault(ground, random)
        during = checker.throughput(ground.attempts, "default", before, now())
        await ground.started(20)
    shown(fault.__name__, rate=during)
    assert during > 0
    assert await lost_attempts(ground) == 0
    for worker in ground.workers:
        assert "gives its jobs up" not in worker.log, worker.log


async def test_answers_to_acks_and_claims_that_are_lost_change_nothing(ground, random):
    """F11: fifty acks are committed, and the node is not told; and ten claims."""
    async with load(ground, 3, rate=100.0):
        await faults.cut_acks(ground, random, times=50)
        await faults.cut_claims(ground, random, times=10)
        await ground.started(50)
    assert await ground.value("SELECT count(*) FROM rxjobs.finished_jobs WHERE state <> 'completed'") == 0
    assert await lost_attempts(ground) == 0


async def test_locks_a_drained_pool_and_a_blocked_loop_cost_no_lease(ground, random):
    """F12, F14, F15, F19."""
    async with load(ground, 3):
        await asyncio.gather(faults.block_loop(ground, random), faults.greedy_jobs(ground, random))
        await faults.deadlocks(ground, random, rounds=2)
        await faults.serialization(ground, random)
        await faults.lock_table(ground, random)
        took = await ground.started(20)
    shown("after the lock", twenty_jobs=took)
    at_most("twenty jobs after the lock", took, 2)
    assert await lost_attempts(ground) == 0


async def test_jobs_that_are_poison_harm_nobody_but_themselves(ground, random):
    """F22, F24, F32, F40, F42, F51, beside a queue that is well (I7)."""
    await faults.large_ids(ground, random)
    async with load(ground, 2):
        before = now()
        for fault in (faults.unknown_type, faults.poison_rows, faults.crash_children, faults.junk_notifications, faults.herd):
            await fault(ground, random)
            await ground.started(10)
        rate = checker.throughput(ground.attempts, "healthy", before, now())
        shown("the healthy queue", rate=rate)
        at_least("jobs a second of the healthy queue", rate, 0.9 * 10, surely=0.2)
    assert await ground.value("SELECT min(id) FROM rxjobs.finished_jobs") > 2**53
    assert await ground.value("SELECT max(attempt) FROM rxjobs.live_jobs WHERE type = 'of_tomorrow'") == 0
    dead = await ground.rows(
        "SELECT type, count(*) AS jobs FROM rxjobs.finished_jobs WHERE state = 'discarded' GROUP BY type ORDER BY type"
    )
    assert dict(map(tuple, dead)) == {"crash": 2, "work": 9}
    charged = await ground.value(
        "SELECT max(attempt) FROM rxjobs.finished_jobs WHERE type IN ('child', 'work') AND state = 'completed'"
    )
    assert charged == 1
