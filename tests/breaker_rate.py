"""`python -m tests.breaker_rate`: the rate of a job type in a queue where another's breaker is open, and by turns alone in it.

The other's jobs are as urgent, have waited for longer, and are as many as `--waiting` says. The rate is that from the first run to
the last.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import defaultdict
from contextlib import nullcontext
from statistics import median

import asyncpg

import rxjobs as rj
from rxjobs.testing import fill
from tests.servers import PrivatePostgres
from tests.waiting import until

KINDS = "alone", "beside"


async def rate(dsn: str, connection: asyncpg.Connection, jobs: int, waiting: int, demand: int) -> float:
    """Jobs a second of the type whose breaker is closed, with so many in the queue of the one whose breaker is open."""
    await connection.execute("TRUNCATE rxjobs.live_jobs, rxjobs.finished_jobs")
    app, ran = rj.App(dsn), list[float]()

    @app.job(name="fragile")
    async def fragile() -> None:
        raise AssertionError("its breaker is open")

    @app.job(name="sturdy")
    async def sturdy() -> None:
        ran.append(time.perf_counter())

    pipeline = app.source("default", max_demand=demand).pipe(rj.execute(concurrency=demand // 2), rj.ack())
    async with app, app.running(pipeline):
        await app.breakers.open("fragile")
        await until(lambda: app.breakers()["fragile"] == "open")
        await app.queues.pause("default")
        await fill(connection, "fragile", waiting)
        await fill(connection, "sturdy", jobs)
        for settle in ("VACUUM ANALYZE rxjobs.live_jobs", "CHECKPOINT"):
            await connection.execute(settle)
        await app.queues.resume("default")
        await until(lambda: len(ran) == jobs)
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs WHERE attempt = 0") == waiting
    return jobs / (ran[-1] - ran[0])


async def measure(dsn: str, jobs: int, waiting: int, demand: int, rounds: int) -> None:
    await rj.App(dsn).migrate()
    connection, rates = await asyncpg.connect(dsn), defaultdict[str, list[float]](list)
    for _ in range(rounds):
        for kind in random.sample(KINDS, len(KINDS)):
            rates[kind].append(await rate(dsn, connection, jobs, waiting if kind == "beside" else 0, demand))
    print(f"PostgreSQL {await connection.fetchval('SHOW server_version')}: {jobs:,} jobs, max_demand {demand}, {rounds} rounds")
    await connection.close()
    for kind, found in rates.items():
        part, beside = median(found) / median(rates["alone"]), f"beside {waiting:,}" if kind == "beside" else kind
        print(f"  {beside:16} {median(found):7,.0f} jobs/s ({min(found):,.0f} to {max(found):,.0f}), {part:.2f} of the rate alone")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dsn", help="an empty database; a server of its own where none is given")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--demand", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    how = parser.parse_args()
    async with PrivatePostgres() if how.dsn is None else nullcontext(how) as server:
        await measure(server.dsn, how.jobs, how.waiting, how.demand, how.rounds)


if __name__ == "__main__":
    asyncio.run(main())
