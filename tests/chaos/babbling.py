"""What it costs a worker that somebody who may connect sends junk on the channel. Run by hand:

    python -m tests.chaos.babbling [--junk 10000] [--rounds 8] [--jobs 6000]

A worker does jobs that do nothing, in turns while junk is sent and while it is not: so both see the same machine. Its rate is that
of the whole machine, on which the server and whoever sends have to share the cores with it; its CPU per job is what it has to do.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import asyncpg
import psutil

import rxjobs as rj
from tests.servers import PrivatePostgres
from tests.waiting import until

BATCH = 500
"""As many at once: each one by itself would keep the server busy with commits, which is not what is measured."""
JUNK = "SELECT pg_notify('rxjobs', 'junk ' || $1 || ' ' || n) FROM generate_series(1, $2::integer) AS n"
TOOK = "SELECT extract(epoch FROM max(finished_at) - min(finished_at))::float8 FROM rxjobs.finished_jobs"


class Round(NamedTuple):
    """What a worker did in one turn."""

    rate: float
    cpu: float
    """µs a job."""


def app_of(dsn: str) -> rj.App:
    app = rj.App(dsn, migrate=True)
    app.job(name="nothing")(_nothing)
    return app


async def _nothing() -> None: ...


async def work(dsn: str) -> None:
    """Do jobs until told to end."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with app_of(dsn).running():
        await stopped.wait()


async def babble(dsn: str, a_second: int) -> None:
    """Send junk until told to end, and say then how many there were a second."""
    stopped, sent = asyncio.Event(), 0
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    connection = await asyncpg.connect(dsn)
    print("ready", flush=True)
    began = time.monotonic()
    while not stopped.is_set():
        await connection.execute(JUNK, str(sent), BATCH)
        sent += BATCH
        await asyncio.sleep(max(0.0, began + sent / a_second - time.monotonic()))
    print(sent / (time.monotonic() - began), flush=True)
    await connection.close()


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    started = await asyncio.create_subprocess_exec(sys.executable, "-m", __spec__.name, *arguments, stdout=asyncio.subprocess.PIPE)
    try:
        yield started
    finally:
        started.terminate()
        await started.wait()


async def turn(connection: asyncpg.Connection, worker: psutil.Process, jobs: int) -> Round:
    """Have the worker do so many jobs."""
    await connection.execute("TRUNCATE rxjobs.finished_jobs")
    before = sum(worker.cpu_times()[:2])
    await connection.execute("INSERT INTO rxjobs.live_jobs (type) SELECT 'nothing' FROM generate_series(1, $1::integer)", jobs)
    await connection.execute("SELECT pg_notify('rxjobs', 'default')")
    await until(lambda: connection.fetchval("SELECT NOT EXISTS (SELECT FROM rxjobs.live_jobs)"), seconds=300, every=0.1)
    return Round(jobs / await connection.fetchval(TOOK), (sum(worker.cpu_times()[:2]) - before) / jobs * 1e6)


async def compare(dsn: str, worker: psutil.Process, options: argparse.Namespace) -> None:
    connection = await asyncpg.connect(dsn)
    with_junk, without = list[Round](), list[Round]()
    for number in range(options.rounds + 1):
        for has_junk in (number % 2 == 0, number % 2 == 1):
            if has_junk:
                async with process("--babble", dsn, "--junk", str(options.junk)) as sender:
                    assert sender.stdout is not None
                    await sender.stdout.readline()
                    with_junk.append(await turn(connection, worker, options.jobs))
                    sender.terminate()
                    sent = float(await sender.stdout.readline())
            else:
                without.append(await turn(connection, worker, options.jobs))
        if number == 0:  # it warms up
            with_junk.clear()
            without.clear()
            continue
        one, other = with_junk[-1], without[-1]
        print(
            f"{sent:6,.0f} junk/s: {one.rate:6,.0f} jobs/s, {one.cpu:4.0f} µs CPU a job   "
            f"without: {other.rate:6,.0f} jobs/s, {other.cpu:4.0f} µs   {one.rate / other.rate:.0%}",
            flush=True,
        )
    parts = [one.rate / other.rate for one, other in zip(with_junk, without, strict=True)]
    cpu = [one.cpu / other.cpu for one, other in zip(with_junk, without, strict=True)]
    print(f"of the rate without junk: median {statistics.median(parts):.0%}, {min(parts):.0%} to {max(parts):.0%}", end="; ")
    print(f"of the CPU a job: median {statistics.median(cpu):.0%}; load {psutil.getloadavg()[0]:.0f}")
    await connection.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--junk", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=6_000)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--babble", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        await work(options.work)
    elif options.babble:
        await babble(options.babble, options.junk)
    else:
        async with PrivatePostgres() as postgres:
            await app_of(postgres.dsn).migrate()
            async with process("--work", postgres.dsn) as worker:
                await compare(postgres.dsn, psutil.Process(worker.pid), options)


if __name__ == "__main__":
    asyncio.run(main())
