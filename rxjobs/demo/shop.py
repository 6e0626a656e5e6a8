"""A worker to watch: a small shop whose customers never stop ordering, so that there is always something on the dashboards.

RXJOBS_DSN=postgresql://… rxjobs run rxjobs.demo.shop:app          (RXJOBS_MIGRATE=true for an empty database)

Most jobs are quick and good, some are slow, some fail now and then and are retried, a few become dead letters, and every few
minutes the bank is away for a while, which opens a breaker. Without RXJOBS_DSN it runs on an embedded PostgreSQL.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import reactivex as rx
from reactivex import Observable
from reactivex import operators as ops
from reactivex.scheduler.eventloop import AsyncIOScheduler

from rxjobs.app import App
from rxjobs.definition import Breaker, NewJob
from rxjobs.events import Event, PipelineStarted, PipelineStopped
from rxjobs.operators.enqueue import enqueue
from rxjobs.outcome import Cancel, Snooze

ORDERS_EVERY = 0.25
"""Seconds between two orders."""
BANK_SECONDS, BANK_AWAY = 300.0, 60.0
"""Of so many seconds the bank is away for so many."""

app = App()
chance = random.Random()  # noqa: S311 - no secret is made of it


class BankAway(ConnectionError):
    """The bank does not answer."""


class NoAddress(ValueError):
    """The customer left no address, and will not."""


def soon(attempt: int, error: BaseException | None) -> float:
    """Retry within seconds rather than minutes: one watches."""
    return min(60.0, 2.0**attempt)


@app.job(name="shop.charge", queue="payments", timeout=10, backoff=soon, breaker=Breaker(fail_max=5, reset_timeout=15))
async def charge(order: int, cents: int) -> str:
    """Take the money, then send the goods; while the bank is away this fails, and soon is not even tried."""
    await asyncio.sleep(chance.uniform(0.01, 0.1))
    look_at_the_bank(time.monotonic())
    await app.enqueue_many([pack.new(order=order), send_receipt.new(order=order, cents=cents)])
    return f"{cents / 100:.2f} for order {order}"


def look_at_the_bank(now: float) -> None:
    """Raises where the bank does not answer at this second."""
    if now % BANK_SECONDS > BANK_SECONDS - BANK_AWAY:
        raise BankAway("the bank does not answer")
    if chance.random() < 0.05:
        raise TimeoutError("the bank took too long")


@app.job(name="shop.pack", queue="warehouse", backoff=soon)
def pack(order: int) -> None:
    """Slow work in a thread; now and then all packers are busy."""
    if chance.random() < 0.02:
        raise Snooze(5)
    time.sleep(chance.lognormvariate(-2.0, 1.0))


@app.job(name="shop.send_receipt", queue="mail", max_attempts=3, backoff=soon)
async def send_receipt(order: int, cents: int) -> None:
    """Some fail once, a few always, and those become dead letters."""
    await asyncio.sleep(chance.uniform(0.001, 0.02))
    if order % 100 == 99:
        raise NoAddress(f"order {order} has no address")
    if order % 100 == 50:
        raise Cancel("the customer wants no receipts")
    if chance.random() < 0.03:
        raise ConnectionResetError("the mail server hung up")


def order(number: int) -> NewJob:
    """The job that an order begins with."""
    return charge.new(order=number, cents=chance.randint(99, 99_99))


def orders() -> Observable[Any]:
    """What customers order, from now on, until a pipeline stops."""
    clock = rx.interval(ORDERS_EVERY, scheduler=AsyncIOScheduler(asyncio.get_running_loop()))
    return clock.pipe(ops.take_until(told(PipelineStopped)), ops.map(order), enqueue(app))


def told(kind: type[Event]) -> Observable[Event]:
    """The events of a kind."""
    return app.events.pipe(ops.filter(lambda event: isinstance(event, kind)))


# the customers come when the shop opens
told(PipelineStarted).pipe(ops.take(1), ops.flat_map(lambda _: orders())).subscribe()
