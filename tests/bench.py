"""How many jobs that do nothing run in a second, and what each costs this process: `make bench`.

On an embedded PostgreSQL, or on the one that `--dsn` names (a schema of its own, dropped at the end). Absolute figures are
this machine's, in these minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
from rich.progress import track

import rxjobs as rj
from rxjobs.serving import run
from rxjobs.testing import count, fill

SCHEMA = "rxjobs_bench"


async def measure(dsn: str, jobs: int, concurrency: int) -> tuple[float, float]:
    """Jobs a second and CPU microseconds a job, from the first fetch until the last ack is committed."""
    app = rj.App(dsn, schema=SCHEMA, migrate=True, keep=1e6)

    @app.job(name="noop")
    async def noop(n: int) -> None: ...

    async with app:
        connection = await asyncpg.connect(app.dsn)
        await connection.execute(f"TRUNCATE {SCHEMA}.live_jobs, {SCHEMA}.finished_jobs")
        await fill(connection, "noop", jobs, args_sql="jsonb_build_object('n', n)", schema=SCHEMA)
        await connection.execute(f"VACUUM ANALYZE {SCHEMA}.live_jobs")
        pipeline = app.source("default", max_demand=2 * concurrency).pipe(rj.execute(concurrency=concurrency), rj.ack())
        began, used = time.perf_counter(), time.process_time()
        async with app.running(pipeline):
            while await count(connection, state="completed", schema=SCHEMA) < jobs:  # noqa: ASYNC110 - it happens in the database
                await asyncio.sleep(0.02)
            took, used = time.perf_counter() - began, time.process_time() - used
        await connection.close()
    return jobs / took, used / jobs * 1e6


async def main(dsn: str, jobs: int) -> None:
    found = [
        (concurrency, *await measure(dsn, jobs, concurrency))
        for concurrency in track((10, 50, 200, 1000), description=f"{jobs:,} jobs at each concurrency")
    ]
    print("concurrency    jobs/s    CPU µs/job")
    for concurrency, rate, used in found:
        print(f"{concurrency:11}{rate:10,.0f}{used:14.1f}")
    async with rj.App(dsn, schema=SCHEMA) as app:
        connection = await asyncpg.connect(app.dsn)
        await connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
        await connection.close()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--dsn")
    options.add_argument("--jobs", type=int, default=20_000)
    asked = options.parse_args()
    with TemporaryDirectory(prefix="rxjobs-bench-") as folder:
        Path(folder).chmod(0o755)
        run(main(asked.dsn or f"embedded://{folder}/data", asked.jobs))
