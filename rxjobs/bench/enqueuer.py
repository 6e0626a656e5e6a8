"""Enqueues as an app does, a program of its own: in bulk, one call after the other, twenty callers at once, or twenty a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import rxjobs as rj
from rxjobs.bench.app import app_of
from rxjobs.bench.bodies import NOTED, bodies
from rxjobs.bench.raw import RawClient
from rxjobs.bench.said import Bench, Order, Ready, Send, Sent, tell
from rxjobs.bench.tally import Tally
from rxjobs.serving import run

CALLERS = 20
PACE_SECONDS = 0.05


class Client(Protocol):
    """What enqueues jobs, each with its number."""

    async def enqueue(self, number: int) -> object: ...

    async def enqueue_many(self, numbers: Iterable[int]) -> object: ...


async def main(opened: Callable[[Order], AbstractAsyncContextManager[Client]]) -> None:
    """Enqueue what stdin orders, and tell how long it took."""
    bench = await Bench.listen()
    order = await bench.order(Send)
    async with opened(order) as client:
        # the connections, and what is made once, are there
        await asyncio.gather(*(client.enqueue(-1) for _ in range(CALLERS)))
        await client.enqueue_many([-1])
        tell(Ready())
        if await bench.says_on():
            began = time.monotonic()
            calls = await WAYS[order.way](client, order.count)
            tell(Sent(seconds=time.monotonic() - began, calls=calls))


def _client(order: Order) -> AbstractAsyncContextManager[Client]:
    return RawClient.connected(order.dsn, order.schema, NOTED) if order.runner == "raw" else AppClient.opened(order)


class AppClient:
    """Enqueues as anybody does with rxjobs."""

    def __init__(self, app: rj.App, noted: rj.Definition[[int], Any]) -> None:
        self._app = app
        self._noted = noted

    @classmethod
    @asynccontextmanager
    async def opened(cls, order: Order) -> AsyncIterator[AppClient]:
        """A client for noted jobs."""
        app = app_of(order)
        noted = app.job(name=NOTED)(bodies(Tally(1))[NOTED])
        async with app:
            yield cls(app, noted)

    async def enqueue(self, number: int) -> None:
        """Insert one job."""
        await self._noted.enqueue(number)

    async def enqueue_many(self, numbers: Iterable[int]) -> None:
        """Insert jobs."""
        await self._app.enqueue_many(self._noted.new(number) for number in numbers)


async def _bulk(client: Client, count: int) -> list[float]:
    await client.enqueue_many(range(count))
    return []


async def _single(client: Client, count: int) -> list[float]:
    for number in range(count):
        await client.enqueue(number)
    return []


async def _together(client: Client, count: int) -> list[float]:
    async def call(numbers: Iterator[int]) -> None:
        for number in numbers:
            await client.enqueue(number)

    numbers = iter(range(count))
    await asyncio.gather(*(call(numbers) for _ in range(CALLERS)))
    return []


async def _paced(client: Client, count: int) -> list[float]:
    began, calls = time.monotonic(), []
    for number in range(count):
        await asyncio.sleep(began + number * PACE_SECONDS - time.monotonic())
        calls.append(time.monotonic())
        await client.enqueue(number)
    return calls


WAYS = {"bulk": _bulk, "single": _single, "together": _together, "paced": _paced}


if __name__ == "__main__":
    run(main(_client))
