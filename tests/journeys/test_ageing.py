"""A job of low priority behind urgent ones that never end."""

from __future__ import annotations

import pytest

import rxjobs as rj
from rxjobs.events import MaintenanceEnded
from tests.waiting import until

URGENT, STEPS = 50, 2


@pytest.mark.parametrize("seconds", [0.2, None], ids=["ageing", "without"])
async def test_a_job_of_low_priority_runs_among_urgent_ones_that_never_end_where_jobs_rise_by_waiting(dsn, seconds):
    app, urgent_ones, low_ones, events = rj.App(dsn, migrate=True, ageing_seconds=seconds, poll_seconds=0.2), [], [], []
    app.events.subscribe(events.append)
    is_over = False

    @app.job(name="urgent")
    async def urgent():
        if not is_over:
            await urgent.enqueue()  # before it ends: there are always five, of which two are held at most
        urgent_ones.append(rj.current_job().id)

    @app.job(name="low", priority=STEPS)
    async def low():
        low_ones.append(rj.current_job().priority)

    async with app:
        await low.enqueue()
        for _ in range(5):
            await urgent.enqueue()
    async with app.running(app.source("default", max_demand=2).pipe(rj.execute(concurrency=1), rj.ack())):
        await until(lambda: low_ones if seconds else len(urgent_ones) >= URGENT)
        ran_among_them = bool(low_ones)
        is_over = True
        await until(lambda: low_ones)
        if seconds:  # its last round may have ended a little after it
            await until(lambda: sum(event.count for event in events if is_of_ageing(event)) == STEPS)
    assert ran_among_them == bool(seconds)
    assert low_ones == [0 if seconds else STEPS]
    assert any(map(is_of_ageing, events)) == bool(seconds)


def is_of_ageing(event):
    return isinstance(event, MaintenanceEnded) and event.task == "age"
