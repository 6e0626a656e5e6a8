"""A collector that is away, slow, overloaded or babbling holds up no job and no exit."""

from __future__ import annotations

import asyncio
import time

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.testing import fill
from tests.telemetry.collector import absent, babbling, overloaded, silent, slow
from tests.telemetry.worker import working

JOBS = 2000
GRACE, MORE = 5.0, 15.0
"""Seconds that jobs have to end, and what a busy machine may add to that: without a bound a test would hang."""

APP = """
import rxjobs as rj

app = rj.App()


@app.job(name="work", queue="told")
async def work(n: int) -> None: ...
"""


@pytest.mark.parametrize(
    ("collector", "protocol"),
    [
        *((collector, "http/protobuf") for collector in (absent, silent, slow, overloaded, babbling)),
        *((collector, "grpc") for collector in (absent, silent, babbling)),  # the others answer by HTTP alone
    ],
)
def test_jobs_go_on_and_the_worker_ends_whatever_the_collector_does(dsn, tmp_path, collector, protocol):
    asyncio.run(lay(dsn))
    with collector() as endpoint:
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_LOGS_EXPORTER": "otlp",
            "OTEL_TRACES_SAMPLER": "always_on",
            "RXJOBS_SHUTDOWN_GRACE": str(GRACE),
        }
        with working(tmp_path, APP, dsn, **environ) as worker:
            assert asyncio.run(finished(dsn, worker)) == JOBS
            took = worker.stop()
    assert took < GRACE + MORE
    print(f"{collector.__name__}, {protocol}: ended {took:.1f} s after the signal")


async def lay(dsn):
    await rj.App(dsn).migrate()
    connection = await asyncpg.connect(dsn)
    await fill(connection, "work", JOBS, args_sql="jsonb_build_object('n', n)")
    await connection.execute("UPDATE rxjobs.live_jobs SET queue = 'told'")
    await connection.close()


async def finished(dsn, worker):
    """How many jobs have ended when all have, or a minute is over."""
    connection = await asyncpg.connect(dsn)
    count, deadline = 0, time.monotonic() + 60
    while count < JOBS and time.monotonic() < deadline:
        assert worker.process.poll() is None, worker.log
        count = await connection.fetchval("SELECT count(*) FROM rxjobs.finished_jobs")
        await asyncio.sleep(0.05)
    await connection.close()
    return count
