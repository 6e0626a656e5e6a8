"""Many who ask opposite things of the same jobs at once: their statements must never wait for each other in a circle."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from random import Random

import asyncpg

import rxjobs as rj
from tests.chaos.enqueuer import definitions
from tests.chaos.ground import Ground

CLIENTS = 8
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


async def quarrel(ground: Ground, random: Random, *, seconds: float, clients: int = CLIENTS) -> Counter[str]:
    """F14: enqueue, cancel, retry, delete and pause at random for so long, beside workers; gives what was done how often."""
    end, done = time.monotonic() + seconds, Counter[str]()
    await asyncio.gather(*(_be_client(ground, Random(random.random()), end, done) for _ in range(clients)))
    return done


async def deadlocks(ground: Ground) -> int:
    """How many the server has found in this database."""
    found: int = await ground.value(DEADLOCKS)
    return found


async def _be_client(ground: Ground, random: Random, end: float, done: Counter[str]) -> None:
    async with definitions(ground.dsn) as app:
        ids: list[int] = []
        while time.monotonic() < end:
            what = random.choice(["enqueue", "enqueue", "unique", "cancel", "cancel all", "retry", "delete", "pause"])
            try:
                ids += await _do(what, app, random, ids)
            except rj.errors.RxJobsError:
                what = f"{what} (refused)"
            except (asyncpg.PostgresError, TimeoutError) as error:  # on a busy machine one may wait in vain
                what = f"{what} ({type(error).__name__})"
            done[what] += 1
            ids = ids[-500:]


async def _do(what: str, app: rj.App, random: Random, ids: list[int]) -> list[int]:
    some = random.sample(ids, min(len(ids), 50))  # in no order, so that whoever locks them in theirs meets the others
    work = app.definition("work")
    match what:
        case "enqueue":
            rows = await app.enqueue_many([work.new(key=f"crowd/{random.random()}", seconds=0.01) for _ in range(20)])
            return [row.id for row in rows]
        case "unique":
            once = work.options(unique=rj.Unique(on_conflict="replace"), delay=random.choice([0.0, 0.2]))
            rows = await app.enqueue_many([once.new(key=f"unique/{key}") for key in random.sample(range(50), 20)])
            return [row.id for row in rows]
        case "cancel":
            await app.jobs.cancel(some)
        case "cancel all":
            await app.jobs.cancel(queue="default", type="work")
        case "retry":
            await app.jobs.retry(some)
        case "delete":
            await app.jobs.delete(some)
        case "pause":
            await app.queues.pause("default")
            await app.queues.resume("default")
    return []
