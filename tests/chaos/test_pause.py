"""A queue that is paused, resumed and scaled again and again, under load."""

from __future__ import annotations

import pytest

from tests.chaos import checker, faults
from tests.chaos.ground import POLL
from tests.chaos.ledger import now
from tests.chaos.loaded import load, lost_attempts, shown
from tests.numbers import at_least, at_most

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]


async def toggle(ground, random, *, times):
    """Pause, resume and scale so often; the queue beside it goes on (I7)."""
    async with load(ground, 2, rate=100.0, seconds=0.1):
        before = now()
        await faults.toggle_queue(ground, random, times=times)
        rate = checker.throughput(ground.attempts, "healthy", before, now())
        await ground.started(20, queue="default")
    late = ground.figures["started in a pause"]
    shown("pause", starts_within_a_poll=len(late), latest=max(late, default=0.0), healthy=rate)
    at_most("start after a pause was committed", max(late, default=0.0), POLL)
    at_least("jobs a second of the healthy queue", rate, 0.9 * 10, surely=0.2)
    assert await lost_attempts(ground) == 0
    # what runs may end, and what has not begun costs no attempt; but on a busy machine a lease may not be renewed in time
    without_lease = {worker.pid for worker in ground.workers if "gives its jobs up" in worker.log}
    assert not [one for one in ground.attempts if one.how == "stop" and one.pid not in without_lease]
    assert await ground.value("SELECT max(attempt) FROM rxjobs.finished_jobs WHERE type = 'work'") == 1


async def test_nothing_starts_in_a_pause_whoever_hears_of_it_and_nothing_is_lost(ground, random):
    """F39; test_long.py has a hundred."""
    await toggle(ground, random, times=12)
