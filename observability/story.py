"""The app of the screenshots: an order is charged, which fails once, and then packed; its receipt becomes a dead letter.

rxjobs run observability.story:app
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import rxjobs as rj

app = rj.App()


def soon(attempt: int, error: BaseException | None) -> float:
    """Seconds until the next attempt."""
    return 0.4


@app.job(name="order.charge", queue="payments", backoff=soon, max_attempts=5, breaker=None)
async def charge(order: int, fails: bool = False) -> None:
    """Charge an order. The bank is away at the first attempt, where that is asked for."""
    await asyncio.sleep(random.uniform(0.02, 0.12))  # noqa: S311 - a story
    if fails and rj.current_job().attempt == 1:
        raise ConnectionError("the bank does not answer")
    await app.enqueue_many([pack.new(order, item) for item in ("cup", "saucer", "spoon")])
    await receipt.enqueue(order, fails=fails)


@app.job(name="order.pack", queue="warehouse")
async def pack(order: int, item: str) -> None:
    """Pack an item; they are packed together."""


@app.job(name="order.receipt", queue="mail", max_attempts=1, breaker=None)
def receipt(order: int, fails: bool = False) -> None:
    """Send a receipt, to an address that there is not, where that is asked for."""
    if fails:
        raise LookupError(f"order {order} has no address")


async def look_up(job: rj.Job) -> dict[str, Any]:
    """What is known of the customer."""
    await asyncio.sleep(0.03)
    return {"customer": job.args["order"]}


async def pack_all(jobs: list[rj.Job]) -> None:
    """Pack what was gathered."""
    await asyncio.sleep(0.15)


payments = app.source("payments", max_demand=50).pipe(rj.enrich(look_up, concurrency=20), rj.execute(concurrency=20), rj.ack())
warehouse = app.source("warehouse", max_demand=50).pipe(rj.buffer(20, 0.3), rj.execute_batch(pack_all), rj.ack())
mail = app.source("mail", max_demand=50).pipe(rj.execute(concurrency=10), rj.ack())

for name, pipeline in (("payments", payments), ("warehouse", warehouse), ("mail", mail)):
    app.pipeline(pipeline, name)
