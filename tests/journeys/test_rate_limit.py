"""A rate for each tenant, on a real queue: one with many jobs holds nobody up, and what goes back loses no attempt."""

from __future__ import annotations

import time
from collections import defaultdict

import rxjobs as rj
from rxjobs.testing import fill
from tests.waiting import until

BUSY, QUIET = 60, 4


async def test_a_tenant_with_many_jobs_does_not_hold_up_the_others(dsn, connection):
    app, began = rj.App(dsn, poll_seconds=0.2, shutdown_grace=5), defaultdict(list)

    @app.job(name="work")
    async def work(tenant: str) -> None:
        began[tenant].append(time.monotonic())

    await fill(connection, "work", BUSY, args={"tenant": "busy"})
    await fill(connection, "work", QUIET, args={"tenant": "quiet"})
    pipeline = app.source("default", max_demand=10).pipe(
        rj.rate_limit(20, per=1.0, burst=1, by="args.tenant"), rj.execute(), rj.ack()
    )

    async def done() -> bool:
        return await connection.fetchval("SELECT count(*) = $1 FROM rxjobs.finished_jobs", BUSY + QUIET)

    async with app.running(pipeline):
        await until(done)
    assert [len(began["busy"]), len(began["quiet"])] == [BUSY, QUIET]
    # those of the quiet one stand behind all of the busy one's, and are done long before
    assert began["quiet"][-1] < began["busy"][BUSY // 2]
    # twenty a second, but for what a busy machine makes of the first
    assert began["busy"][-1] - began["busy"][0] > 0.7 * (BUSY - 1) / 20
    attempts = await connection.fetch("SELECT DISTINCT attempt, errors IS NULL AS is_clean FROM rxjobs.finished_jobs")
    assert [tuple(row) for row in attempts] == [(1, True)]
