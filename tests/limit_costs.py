"""`python -m tests.limit_costs`: what limits cost a claim, as parts of the speed of claims from a queue without any, by turns.

Of a server on this machine the processor time of its sessions is told too: it is the same whatever else the machine does.
With `--whole` it is what limits cost a pipeline whose jobs do nothing, in jobs a second.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import defaultdict
from contextlib import nullcontext, suppress
from pathlib import Path
from statistics import median
from uuid import uuid4

import asyncpg

import rxjobs as rj
from rxjobs.store.limit_statements import NONE, Limits, Rate
from rxjobs.testing import fill
from tests.servers import PrivatePostgres
from tests.waiting import until

MOST = 10_000
KINDS = {
    "no limit": NONE,
    "concurrency": Limits(concurrency=MOST),
    "concurrency of keys": Limits(by="args.tenant", each_concurrency=MOST),
    "rate of keys": Limits(by="args.tenant", each_rate=Rate(10**9, 1.0, burst=10**9)),
    "shared by keys": Limits(by="args.tenant", is_shared=True),
}
TURNS = 30
WHOLE = 8_000
SESSIONS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"


def processor_seconds(pids: list[int]) -> float:
    """What these sessions have used so far; 0 where they are not on this machine."""
    used = 0.0
    for pid in pids:
        with suppress(OSError):
            used += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return used


async def measure(dsn: str, n: int, keys: int, rounds: int) -> None:
    took, used = defaultdict(list), defaultdict(list)
    connection = await asyncpg.connect(dsn)
    async with rj.App(dsn, migrate=True) as app:
        store, node = app.store, uuid4()
        await store.take_lease(node, "", 1, 3600)
        for queue, limits in KINDS.items():
            await store.change_limits(queue, lambda _, limits=limits: limits)
        for _ in range(rounds):
            await connection.execute("TRUNCATE rxjobs.live_jobs, rxjobs.finished_jobs")
            for queue in KINDS:
                await fill(connection, "work", TURNS * n, queue=queue, args_sql=f"json_build_object('tenant', 't' || n % {keys})")
            await connection.execute("VACUUM ANALYZE rxjobs.live_jobs")
            for turn in range(TURNS):
                for queue in random.sample(list(KINDS), len(KINDS)):
                    pids = [row["pid"] for row in await connection.fetch(SESSIONS)]
                    before, since = processor_seconds(pids), time.perf_counter()
                    if KINDS[queue] == NONE:
                        claimed = await store.fetch_jobs(queue, n, ["work"], node)
                    else:
                        claimed = await store.fetch_limited(queue, n, ["work"], node, [], "{}", by_keys=KINDS[queue].by is not None)
                    if turn > 5:  # plans are made by then
                        took[queue].append(time.perf_counter() - since)
                        used[queue].append(processor_seconds(pids) - before)
                    assert len(claimed) == n, queue
                    await store.ack_completed([row["id"] for row in claimed], node, 1)
    print(f"{await connection.fetchval('SHOW server_version')}: claims of {n} jobs, {keys} keys")
    await connection.close()
    for queue in KINDS:
        part, of_server = (median(of["no limit"]) / median(of[queue]) if median(of[queue]) else 0.0 for of in (took, used))
        print(f"  {queue:20} {median(took[queue]) * 1e3:6.2f} ms, {part:.2f} of the speed; by processor time {of_server:.2f}")


async def measure_whole(dsn: str, demand: int, keys: int, rounds: int) -> None:
    rates = defaultdict(list)
    connection = await asyncpg.connect(dsn)
    async with rj.App(dsn, migrate=True) as app:
        for queue, limits in KINDS.items():
            await app.store.change_limits(_named(queue), lambda _, limits=limits: limits)
    for _ in range(rounds):
        for queue in random.sample(list(KINDS), len(KINDS)):
            await connection.execute("TRUNCATE rxjobs.live_jobs, rxjobs.finished_jobs")
            args = f"json_build_object('tenant', 't' || n % {keys})"
            await fill(connection, "work", WHOLE, queue=_named(queue), args_sql=args)
            await connection.execute("VACUUM ANALYZE rxjobs.live_jobs")
            app = rj.App(dsn)

            @app.job(name="work")
            async def work(tenant: str) -> None: ...

            since = time.perf_counter()
            pipeline = app.source(_named(queue), max_demand=demand).pipe(rj.execute(concurrency=demand // 2), rj.ack())
            async with app.running(pipeline):
                await until(lambda: connection.fetchval("SELECT NOT EXISTS (SELECT FROM rxjobs.live_jobs)"), every=0.02)
                rates[queue].append(WHOLE / (time.perf_counter() - since))
    print(f"{await connection.fetchval('SHOW server_version')}: pipelines of max_demand {demand}, {keys} keys")
    await connection.close()
    for queue, found in rates.items():
        part = median(found) / median(rates["no limit"])
        print(f"  {queue:20} {median(found):7,.0f} jobs/s ({min(found):,.0f} to {max(found):,.0f}), {part:.2f} of the rate")


def _named(kind: str) -> str:
    return kind.replace(" ", "-")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dsn", help="an empty database; a server of its own where none is given")
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--keys", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--whole", action="store_true", help="whole pipelines; n is half of their max_demand")
    how = parser.parse_args()
    async with PrivatePostgres() if how.dsn is None else nullcontext(how) as server:
        if how.whole:
            await measure_whole(server.dsn, 2 * how.n, how.keys, how.rounds)
        else:
            await measure(server.dsn, how.n, how.keys, how.rounds)


if __name__ == "__main__":
    asyncio.run(main())
