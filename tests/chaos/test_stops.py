"""A few of each kind of stop; test_long.py has the many."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.chaos import stops
from tests.chaos.loaded import HANG, shown
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]


@pytest.fixture(autouse=True)
def figures(ground):
    """Show what was measured."""
    yield
    for what, found in ground.figures.items():
        shown(what, of=len(found), longest=max(found))


async def test_at_a_signal_claims_stop_at_once_and_what_does_not_end_in_time_is_cancelled_once_and_released(ground):
    """F2, rows 27 and 66."""
    await stops.stop_with_long_jobs(ground, 3)


async def test_at_a_second_signal_it_exits_at_once(ground):
    """F2."""
    await stops.stop_twice(ground, 2)


async def test_a_signal_at_any_moment_of_a_start_is_not_lost(ground, random):
    """Row 24."""
    await stops.short_jobs(ground, 100)
    await stops.stop_while_starting(ground, [random.uniform(0.0, 0.2) for _ in range(6)])
    await stops.clear(ground)
    await stops.stop_while_starting(ground, [random.uniform(0.2, 2.0) for _ in range(4)])


async def test_a_signal_while_a_start_waits_for_a_server_that_went_away_ends_it(ground):
    (worker,) = await ground.spawn()
    gone = worker.link.watch_for("-- Enter node", "Z", lambda link: worker.link.refuse())
    await asyncio.wait_for(gone.sprung.wait(), HANG)
    await until(lambda: "is tried again" in worker.log, seconds=HANG)
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.ended(HANG) == 0
    assert "Traceback" not in worker.log


async def test_notifications_that_come_while_it_stops_harm_nothing(ground):
    """Row 38."""
    await stops.stop_in_a_flood(ground, 3)


@pytest.mark.parametrize("answer", ["late", "lost"])
async def test_what_is_claimed_when_the_signal_comes_is_released_and_charged_no_attempt(ground, random, answer):
    """Row 58."""
    await stops.stop_with_a_claim_in_flight(ground, random, answer=answer)


async def test_heartbeats_are_the_last_thing_to_stop(ground):
    """Row 60."""
    await stops.stop_with_a_job_longer_than_the_lease(ground)
