"""How fast a queue stays while a transaction pins the vacuum horizon, and how fast it is again afterwards. Run by hand:

    python -m tests.chaos.pinned [--seconds 120] [--from-the-start] [--dsn postgresql://…]

With --from-the-start claims never begin at their low-water marks, to see what these are good for.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import asyncpg

import rxjobs as rj
from rxjobs.sources import low_water
from tests.servers import PrivatePostgres

READY, DEMAND, WINDOW = 2_000, 200, 5.0
QUIET, AFTER = 20.0, 20.0


@dataclass
class Seen:
    """What went by in one window."""

    jobs: int
    claims: list[float]

    @property
    def rate(self) -> float:
        return self.jobs / WINDOW

    def claim(self, part: float) -> float:
        """A percentile of the claims' times, in ms."""
        return sorted(self.claims)[int(len(self.claims) * part)] * 1e3 if self.claims else 0.0

    def __str__(self) -> str:
        return f"{self.rate:8,.0f} jobs/s   claims p50 {self.claim(0.5):6.1f}  p99 {self.claim(0.99):6.1f} ms"


class Ground:
    """An app that works off a queue which is filled up as fast as it empties."""

    def __init__(self, dsn: str) -> None:
        self.app = rj.App(dsn, migrate=True)
        self.app.job(name="nothing")(_nothing)
        self.seen = Seen(0, [])

    async def watch(self, what: str, seconds: float) -> list[Seen]:
        windows = []
        for place in range(max(1, round(seconds / WINDOW))):
            self.seen = Seen(0, [])
            await asyncio.sleep(WINDOW)
            windows.append(self.seen)
            print(f"{what:8} {(place + 1) * WINDOW:4.0f} s {self.seen}", flush=True)
        return windows

    async def fill_up(self, connection: asyncpg.Connection[Any]) -> None:
        """Keep READY jobs there: as many are inserted as were acked."""
        store = self.app.store
        claim: Callable[..., Any] = store.fetch_jobs
        ack: Callable[..., Any] = store.ack_completed
        missing = READY

        async def timed_claim(*given: Any) -> Any:
            began = time.perf_counter()
            rows = await claim(*given)
            self.seen.claims.append(time.perf_counter() - began)
            return rows

        async def counted_ack(*given: Any) -> Any:
            nonlocal missing
            ids = await ack(*given)
            missing += len(ids)
            self.seen.jobs += len(ids)
            return ids

        store.fetch_jobs, store.ack_completed = timed_claim, counted_ack  # type: ignore[method-assign]
        while True:
            now, missing = missing, 0
            if now:
                await connection.execute(
                    "INSERT INTO rxjobs.live_jobs (type) SELECT 'nothing' FROM generate_series(1, $1::integer)", now
                )
            await asyncio.sleep(0.01)


async def _nothing() -> None: ...


async def measure(dsn: str, seconds: float) -> None:
    ground = Ground(dsn)
    filler, pinning = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    async with ground.app.running(ground.app.source("default", max_demand=DEMAND).pipe(rj.execute(concurrency=DEMAND), rj.ack())):
        filling = asyncio.ensure_future(ground.fill_up(filler))
        quiet = await ground.watch("quiet", QUIET)
        await pinning.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1")
        pinned = await ground.watch("pinned", seconds)
        await pinning.execute("ROLLBACK")
        dead = await pinning.fetchval("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'live_jobs'")
        after = await ground.watch("after", AFTER)
        filling.cancel()
    await filler.close()
    await pinning.close()
    before = sum(seen.rate for seen in quiet[1:]) / len(quiet[1:])
    print(f"{dead:,} dead rows; of the rate before {pinned[-1].rate / before:.0%} pinned, {after[-1].rate / before:.0%} after it")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--from-the-start", action="store_true")
    parser.add_argument("--dsn")
    options = parser.parse_args()
    if options.from_the_start:
        low_water.CROWDED_SECONDS = float("inf")
    if options.dsn:
        await measure(options.dsn, options.seconds)
        return
    async with PrivatePostgres() as postgres:
        await measure(postgres.dsn, options.seconds)


if __name__ == "__main__":
    asyncio.run(main())
