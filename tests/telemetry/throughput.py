"""What a bad collector costs: python -m tests.telemetry.throughput --rounds 5 --jobs 10000

Jobs that do nothing are run by `rxjobs run`, every one of them traced, once with a collector that answers and once with one that is
away, silent, slow, overloaded or babbling, turn about (ABBA…). Told are jobs a second by PostgreSQL's clock, as medians and their
ratio; the CPU time of the worker for a job, which other work on the machine touches less; and how long it took to end.
Fails (exit code 1) where the rate falls below 95 %, or an end takes longer than the grace and two seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import asyncpg

import rxjobs as rj
from rxjobs.store.served import served
from rxjobs.testing import fill
from tests.telemetry import collector
from tests.telemetry.worker import Worker, working

APP = """
import rxjobs as rj

app = rj.App()


@app.job(name="work", queue="told")
async def work(n: int) -> None: ...


app.pipeline(app.source("told", max_demand=100).pipe(rj.execute(concurrency=50), rj.ack()))
"""
GRACE, MORE = 5.0, 2.0
LEAST = 0.95
WAIT_SECONDS = 300.0
TICKS = os.sysconf("SC_CLK_TCK")

Collector = Callable[[], AbstractContextManager[str]]


BAD: tuple[Collector, ...] = (
    collector.absent, collector.silent, collector.slow, collector.overloaded, collector.babbling,
)  # fmt: skip


class Round(NamedTuple):
    """Jobs a second, µs of the worker's CPU for a job, and seconds from the signal to the end."""

    rate: float
    cpu: float
    end: float


async def main() -> int:
    """Measure; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--protocol", choices=("http/protobuf", "grpc"), default="http/protobuf")
    parser.add_argument("--dsn", default=os.environ.get("RXJOBS_DSN"), help="a PostgreSQL, whose schema rxjobs is dropped")
    parser.add_argument("--only", nargs="+", metavar="COLLECTOR", help=f"of {', '.join(one.__name__ for one in BAD)}")
    how = parser.parse_args()
    # the others answer by HTTP alone
    is_http = how.protocol != "grpc"
    bad = BAD if is_http else (collector.absent, collector.silent, collector.babbling)
    bad = tuple(one for one in bad if not how.only or one.__name__ in how.only)
    good = collector.answering if is_http else _answering_by_grpc
    with tempfile.TemporaryDirectory(prefix="rxjobs-throughput-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - as root, PostgreSQL has an account of its own, which is to reach it
        async with served(how.dsn or f"embedded://{folder}/postgres") as dsn:
            return await _compare(dsn, Path(folder), good, bad, how)


@contextmanager
def _answering_by_grpc() -> Iterator[str]:
    with collector.receiving_grpc() as (endpoint, _):
        yield endpoint


async def _compare(dsn: str, folder: Path, well: Collector, bad: tuple[Collector, ...], how: argparse.Namespace) -> int:
    code = 0
    print(f"{how.jobs} jobs a round, {how.rounds} rounds each, all traced, {how.protocol}; load {os.getloadavg()[0]:.1f}")
    for one in bad:
        found: dict[Collector, list[Round]] = {well: [], one: []}
        for number in range(how.rounds):
            for which in (well, one) if number % 2 == 0 else (one, well):
                found[which].append(await _round(dsn, folder, which, how))
        good, poor = _medians(found[well]), _medians(found[one])
        longest, ratio = max(each.end for each in found[one]), poor.rate / good.rate
        print(
            f"{one.__name__:>10}: {poor.rate:6.0f} jobs/s of {good.rate:6.0f} = {ratio:6.1%}; CPU {poor.cpu:4.0f} µs a job of "
            f"{good.cpu:4.0f} = {poor.cpu / good.cpu:6.1%}; ended within {longest:.1f} s; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        code |= ratio < LEAST or longest > GRACE + MORE
    return int(code)


def _medians(rounds: list[Round]) -> Round:
    return Round(*(median(values) for values in zip(*rounds, strict=True)))


async def _round(dsn: str, folder: Path, which: Collector, how: argparse.Namespace) -> Round:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("DROP SCHEMA IF EXISTS rxjobs CASCADE")
        await rj.App(dsn).migrate()
        with which() as endpoint:
            environ = {
                "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
                "OTEL_EXPORTER_OTLP_PROTOCOL": how.protocol,
                "OTEL_TRACES_SAMPLER": "always_on",
                "OTEL_BSP_SCHEDULE_DELAY": "1000",
                "OTEL_METRIC_EXPORT_INTERVAL": "1000",
                "RXJOBS_SHUTDOWN_GRACE": str(GRACE),
            }
            with working(folder, APP, dsn, "--log-level=error", **environ) as worker:
                await _until(connection, worker, "SELECT count(*) = 1 FROM rxjobs.leaders JOIN rxjobs.nodes ON node = nodes.id")
                before = _cpu(worker)
                async with connection.transaction():
                    await fill(connection, "work", how.jobs, args_sql="jsonb_build_object('n', n)")
                    await connection.execute("UPDATE rxjobs.live_jobs SET queue = 'told'")
                await _until(connection, worker, f"SELECT count(*) = {how.jobs} FROM rxjobs.finished_jobs")
                cpu = (_cpu(worker) - before) / how.jobs * 1e6
                seconds = await connection.fetchval(
                    "SELECT extract(epoch FROM max(finished_at) - min(attempted_at))::float8 FROM rxjobs.finished_jobs"
                )
                return Round(how.jobs / seconds, cpu, worker.stop())
    finally:
        await connection.close()


async def _until(connection: asyncpg.Connection, worker: Worker, holds: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not await connection.fetchval(holds):
        if worker.process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the worker did not get there ({holds}):\n{worker.log[-2000:]}")
        await asyncio.sleep(0.05)


def _cpu(worker: Worker) -> float:
    """Seconds of CPU that a worker has taken."""
    fields = Path(f"/proc/{worker.process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
