"""What notifications cost those who enqueue, and how often they have those who wait ask. Run by hand:

    python -m tests.chaos.notifying [--clients 24] [--callers 1] [--rounds 10] [--seconds 2] [--sources 20]

First clients, each an app with connections of its own, enqueue jobs one at a time, in turns with and without notifications.
Then as many sources take from the queue while the clients enqueue on. With several callers a client does so for each at once, whose
jobs share inserts.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg

import rxjobs as rj
from tests.servers import PrivatePostgres

PROCESSES = 4
LISTENERS = 4
ON, OFF = "on", "off"


def app_of(dsn: str, *, notify: bool = True) -> rj.App:
    app = rj.App(dsn, migrate=True, notify=notify)
    app.job(name="nothing")(_nothing)
    return app


async def _nothing() -> None: ...


async def be_clients(dsn: str, count: int, callers: int) -> None:
    """Enqueue when told to, `on 2` for two seconds with notifications, and say how many jobs it was."""
    async with AsyncExitStack() as stack:
        apps = {how: [await stack.enter_async_context(app_of(dsn, notify=how == ON)) for _ in range(count)] for how in (ON, OFF)}
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            how, seconds = line.split()
            end = time.monotonic() + float(seconds)
            print(sum(await asyncio.gather(*(_enqueue(app, end) for app in apps[how] * callers))), flush=True)


async def _enqueue(app: rj.App, end: float) -> int:
    nothing, done = app.definition("nothing"), 0
    while time.monotonic() < end:
        await nothing.enqueue()
        done += 1
    return done


class Clients:
    """Processes that enqueue together."""

    def __init__(self, processes: list[asyncio.subprocess.Process]) -> None:
        self._processes = processes

    async def rate(self, how: str, seconds: float) -> float:
        """How many jobs a second they enqueue."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{how} {seconds}\n".encode())
        return sum([int(await _line(process)) for process in self._processes]) / seconds


def processes_for(clients: int) -> int:
    return min(PROCESSES, clients)


async def _line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    return await process.stdout.readline()


@asynccontextmanager
async def clients_of(dsn: str, count: int, callers: int) -> AsyncIterator[Clients]:
    """So many, in a few processes."""
    pipe = asyncio.subprocess.PIPE
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.chaos.notifying",
            "--serve",
            dsn,
            "--clients",
            str(count // processes_for(count)),
            "--callers",
            str(callers),
            stdin=pipe,
            stdout=pipe,
        )
        for _ in range(processes_for(count))
    ]
    for process in processes:
        await _line(process)
    yield Clients(processes)
    for process in processes:
        process.terminate()
        await process.wait()


async def cost(dsn: str, together: Clients, rounds: int, seconds: float) -> None:
    """The same clients in turns with and without, so that both see the same machine."""
    listeners = [await asyncpg.connect(dsn) for _ in range(LISTENERS)]
    for listener in listeners:
        await listener.add_listener("rxjobs", lambda *_: None)
    parts = []
    for number in range(rounds + 1):
        first, second = (ON, OFF) if number % 2 else (OFF, ON)
        rates = {how: await together.rate(how, seconds) for how in (first, second)}
        await listeners[0].execute("TRUNCATE rxjobs.live_jobs")
        if number:  # the first warms up
            parts.append(rates[ON] / rates[OFF])
            print(f"with {rates[ON]:7,.0f} /s   without {rates[OFF]:7,.0f} /s   {parts[-1]:.0%}", flush=True)
    for listener in listeners:
        await listener.close()
    print(f"of the rate without notifications: median {statistics.median(parts):.0%}, {min(parts):.0%} to {max(parts):.0%}")


async def asking(dsn: str, together: Clients, sources: int, seconds: float) -> dict[str, float]:
    """How often sources ask, and how often in vain, from the second second on."""
    fetches: list[int] = []
    async with AsyncExitStack() as stack:
        for _ in range(sources):
            app = app_of(dsn)
            await stack.enter_async_context(app.running())
            fetch = app.store.fetch_jobs

            async def counted(*given: Any, fetch: Any = fetch) -> Any:
                rows = await fetch(*given)
                fetches.append(len(rows))
                return rows

            app.store.fetch_jobs = counted  # type: ignore[method-assign]
        enqueuing = asyncio.create_task(together.rate(ON, seconds + 1.0))
        await asyncio.sleep(1.0)
        before = len(fetches)
        rate = await enqueuing
        counted_now = fetches[before:]
    return {
        "enqueues a second": rate,
        "fetches a second": len(counted_now) / seconds,
        "in vain": sum(1 for rows in counted_now if not rows) / max(1, len(counted_now)),
        "fetches of a source in 20 ms": len(counted_now) / seconds / sources * 0.02,
    }


async def herd(*, clients: int, callers: int, sources: int, seconds: float) -> dict[str, float]:
    """What `asking` finds, on a server of its own."""
    async with PrivatePostgres(max_connections="500") as postgres:
        await app_of(postgres.dsn).migrate()
        async with clients_of(postgres.dsn, clients, callers) as together:
            return await asking(postgres.dsn, together, sources, seconds)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--sources", type=int, default=20)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        await be_clients(options.serve, options.clients, options.callers)
        return
    async with PrivatePostgres(max_connections="500") as postgres:
        await app_of(postgres.dsn).migrate()
        async with clients_of(postgres.dsn, options.clients, options.callers) as together:
            await cost(postgres.dsn, together, options.rounds, options.seconds)
            found = await asking(postgres.dsn, together, options.sources, 5 * options.seconds)
            print(f"{options.sources} sources:", ", ".join(f"{figure:,.2f} {what}" for what, figure in found.items()))


if __name__ == "__main__":
    asyncio.run(main())
