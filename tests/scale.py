"""What more processes, and a cluster, make of the same jobs on this machine: `python -m tests.scale`, see docs/scale.md.

Each row is `rxjobs run` on jobs that are all there when it starts, and counts from the first attempt's start to the last one's end,
by PostgreSQL's clock. Give RXJOBS_DSN, or an embedded server is started.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg

import rxjobs as rj
from rxjobs.calls import Executor
from rxjobs.testing import fill
from tests.servers import folder_for_a_server

PLACE = "RXJOBS_SCALE_PLACE"
COMPUTED = 80_000
"""Rounds of a loop: about ten milliseconds of a quiet core."""
WAITED = 0.01


def compute() -> int:
    total = 0
    for n in range(COMPUTED):
        total += n * n
    return total


async def wait() -> None:
    await asyncio.sleep(WAITED)


async def nothing() -> None:
    pass


@contextlib.contextmanager
def dask(workers: int) -> Iterator[futures.Executor]:
    """A Dask cluster of worker processes with one thread each."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        yield client.get_executor()


@contextlib.contextmanager
def ray(workers: int) -> Iterator[futures.Executor]:
    """Ray on this machine, with so many CPUs."""
    import ray as ray_

    from rxjobs.executors.ray import RayExecutor

    ray_.init(num_cpus=workers, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    try:
        with RayExecutor() as pool:
            yield pool
    finally:
        ray_.shutdown()


def place_of(name: str, stack: contextlib.ExitStack) -> Executor:
    match name:
        case "threads":
            return rj.in_threads(4)
        case "processes":
            return rj.in_processes(2)
        case "dask":
            return rj.in_pool(stack.enter_context(dask(2)))
        case "ray":
            return rj.in_pool(stack.enter_context(ray(2)))
        case _:
            return rj.on_loop()


STEPS: list[tuple[str, str, str, tuple[str, ...], int]] = [
    ("nothing", "one process", "loop", (), 20_000),
    ("nothing", "two processes", "loop", ("--processes", "2"), 20_000),
    ("wait", "one process", "loop", (), 5_000),
    ("wait", "two processes", "loop", ("--processes", "2"), 5_000),
    ("compute", "one process", "threads", (), 400),
    ("compute", "one process, in_processes(2)", "processes", (), 400),
    ("compute", "two processes", "threads", ("--processes", "2"), 400),
    ("compute", "Dask, 2 workers", "dask", (), 400),
    ("compute", "Ray, 2 CPUs", "ray", (), 400),
]
"""The job type, what the row is called, where its code runs, options of `rxjobs run`, and how many jobs."""


async def measured(dsn: str, kind: str, place: str, options: tuple[str, ...], jobs: int) -> float:
    """Jobs a second."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("DROP SCHEMA IF EXISTS rxjobs CASCADE")
        await rj.App(dsn).migrate()
        await fill(connection, kind, jobs)
        environ = {**os.environ, "RXJOBS_DSN": dsn, PLACE: place, "PYTHONPATH": str(Path(__file__).parents[1])}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rxjobs", "run", "tests.scale_app:app", *options, env=environ, stderr=subprocess.DEVNULL
        )
        try:
            until = time.monotonic() + 300
            while await connection.fetchval("SELECT count(*) FROM rxjobs.jobs WHERE state = 'completed'") < jobs:
                assert time.monotonic() < until, f"{jobs} jobs did not end within five minutes"
                assert process.returncode is None, f"rxjobs run ended with {process.returncode}"
                await asyncio.sleep(0.25)
            seconds = await connection.fetchval(
                "SELECT extract(epoch FROM max(finished_at) - min(attempted_at))::float8 FROM rxjobs.jobs"
            )
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()
        return jobs / float(seconds)
    finally:
        await connection.close()


async def measure(dsn: str, rounds: int, wanted: str | None) -> None:
    steps = [step for step in STEPS if wanted is None or wanted in f"{step[0]} {step[1]}"]
    found: dict[Any, list[float]] = {step: [] for step in steps}
    for number in range(rounds):
        for step in steps if number % 2 == 0 else reversed(steps):
            kind, name, place, options, jobs = step
            if place in ("dask", "ray") and importlib.util.find_spec("distributed" if place == "dask" else "ray") is None:
                continue
            found[step].append(await measured(dsn, kind, place, options, jobs))
            print(f"{kind}, {name}: {found[step][-1]:,.0f} jobs/s, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    print("| jobs that | run by | jobs/s |\n|---|---|---|")
    for (kind, name, *_), rates in found.items():
        if rates:
            print(f"| {kind} | {name} | {median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f}) |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", help="the rows whose name contains this")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        dsn = os.environ.get("RXJOBS_DSN")
        if not dsn:
            from rxjobs.store import embedded

            server = embedded.start(stack.enter_context(folder_for_a_server()))
            stack.callback(server.stop)
            dsn = server.dsn
        asyncio.run(measure(dsn, given.rounds, given.only))


if __name__ == "__main__":
    main()
