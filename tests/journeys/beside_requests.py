"""Measure what a hot queue does to the requests of the web application that it shares an event loop with.

python -m tests.journeys.beside_requests [--jobs 20000]        on RXJOBS_TEST_DSN, or an embedded server
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import rxjobs as rj
from rxjobs.store import embedded
from rxjobs.testing import fill
from tests.servers import folder_for_a_server
from tests.waiting import until

TICK = 0.005

CLIENT = """
import sys, time, httpx
with httpx.Client(transport=httpx.HTTPTransport(uds=sys.argv[1]), base_url="http://localhost", timeout=120) as client:
    client.get("/")
    print("ready", flush=True)
    for line in sys.stdin:  # one request a line
        began = time.perf_counter()
        client.get("/").raise_for_status()
        print(time.perf_counter() - began, flush=True)
"""
"""In a process of its own, so that it waits for the server alone."""


@dataclass
class Seen:
    """What a phase was like: seconds that requests took, and by how much a timer of the loop came late."""

    requests: list[float]
    late: list[float]
    jobs: int
    seconds: float

    def told(self, name: str) -> str:
        requests, late = sorted(self.requests), sorted(self.late)
        return (
            f"{name:<20} {len(requests):>5} requests: median {1e3 * statistics.median(requests):6.1f} ms, "
            f"99 of 100 within {1e3 * requests[len(requests) * 99 // 100]:6.1f} ms, longest {1e3 * requests[-1]:6.1f} ms; "
            f"loop late by {1e3 * statistics.median(late):5.1f} ms, at most {1e3 * late[-1]:6.1f} ms; "
            f"{self.jobs / self.seconds:6,.0f} jobs a second"
        )


async def measure(dsn: str, jobs: int, quiet: int = 200) -> tuple[Seen, Seen]:
    """Requests to an application whose loop runs no job, then while it works off `jobs` small ones."""
    app = rj.App(dsn, migrate=True)
    done = 0

    @app.job(name="small", queue="hot")
    async def small(n: int) -> None:
        nonlocal done
        done += 1

    async def hello(_: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    web = Starlette(routes=[Route("/", hello)])
    with socket_path() as path:
        server = uvicorn.Server(uvicorn.Config(web, uds=path, log_level="warning", lifespan="off"))
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, path, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert client.stdin is not None
        assert client.stdout is not None
        assert await client.stdout.readline() == b"ready\n"

        async def ask() -> float:
            client.stdin.write(b"\n")
            return float(await client.stdout.readline())

        async def phase(is_over) -> Seen:
            began, before, requests, late = time.perf_counter(), done, [], []
            ticking = asyncio.create_task(tick(late))
            while not is_over(len(requests)):
                requests.append(await ask())
            ticking.cancel()
            return Seen(requests, late, done - before, time.perf_counter() - began)

        async with app:
            connection = await asyncpg.connect(dsn)
            await fill(connection, "small", jobs, args_sql="json_build_object('n', n)", queue="hot")
            await connection.close()
            without = await phase(lambda count: count >= quiet)
            async with app.running():
                beside = await phase(lambda count: done >= jobs)
        client.stdin.close()
        await client.wait()
        server.should_exit = True
        await serving
    return without, beside


async def tick(late: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + TICK
        await asyncio.sleep(TICK)
        late.append(loop.time() - due)


@contextmanager
def socket_path() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="rxw-") as folder:
        yield str(Path(folder) / "web")


async def on_a_database_of_its_own(server: str, jobs: int) -> None:
    connection = await asyncpg.connect(server)
    name = f"rxjobs_beside_{uuid4().hex}"
    await connection.execute(f"CREATE DATABASE {name}")
    try:
        for phase, seen in zip(("without jobs", "beside a hot queue"), await measure(at(server, name), jobs), strict=True):
            print(seen.told(phase))
        print(f"the load of this machine: {os.getloadavg()[0]:.1f}")
    finally:
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await connection.close()


def at(server: str, name: str) -> str:
    return urlsplit(server)._replace(path=f"/{name}").geturl()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=20_000)
    jobs = parser.parse_args().jobs
    if given := os.environ.get("RXJOBS_TEST_DSN"):
        asyncio.run(on_a_database_of_its_own(given, jobs))
    else:
        with folder_for_a_server() as folder:
            server = embedded.start(folder)
            asyncio.run(on_a_database_of_its_own(server.dsn, jobs))
            server.stop()
