"""Enqueues without pause, and writes down what it was told about each key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

import rxjobs as rj
from tests.chaos.ledger import Answer, now

REFUSED = (
    ConnectionRefusedError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.DiskFullError,
    rj.errors.RxJobsError,
)
"""What says that nothing was sent, or that the server took nothing."""


class Enqueuer:
    """Keys by number, each a job of its own. `work` of a queue at so many a second, from so many callers."""

    def __init__(self, app: rj.App, name: str, *, queue: str, rate: float, seconds: float, flaky: bool) -> None:
        self.answers: dict[str, Answer] = {}
        self.errors: dict[str, int] = {}
        self.slowest = 0.0
        self._app = app
        self._name = name
        self._queue = queue
        self._rate = rate
        self._seconds = seconds
        self._flaky = flaky
        self._calls: set[asyncio.Task[None]] = set()

    async def enqueue_for_ever(self) -> None:
        """One call after the other begins in its time, whether those before have been answered or not."""
        number = 0
        while True:
            number += 1
            call = asyncio.create_task(self._one(f"{self._name}/{number}", number))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
            await asyncio.sleep(1 / self._rate)

    async def wait(self) -> None:
        """Until every call was answered."""
        if self._calls:
            await asyncio.wait(self._calls)

    async def _one(self, key: str, number: int) -> None:
        self.answers[key] = Answer.INFO
        began = now()
        if self._flaky and number % 10 == 0:
            new = self._app.definition("flaky").options(queue=self._queue).new(key=key)
        else:
            new = self._app.definition("work").options(queue=self._queue).new(key=key, seconds=self._seconds)
        try:
            await self._app.enqueue(new)
        except REFUSED:
            self.answers[key] = Answer.FAIL
        except Exception as error:  # whatever it is, the row may be there
            name = type(error).__name__
            self.errors[name] = self.errors.get(name, 0) + 1
        else:
            self.answers[key] = Answer.OK
        self.slowest = max(self.slowest, (now() - began) / 1e9)


def definitions(dsn: str) -> rj.App:
    """An app that knows what the workers run, and runs nothing."""
    app = rj.App(dsn)

    @app.job(name="work", max_attempts=50)
    async def work(key: str, seconds: float = 0.0) -> None: ...

    @app.job(name="flaky", max_attempts=50)
    async def flaky(key: str) -> None: ...

    return app


@asynccontextmanager
async def enqueuing(
    dsn: str, name: str, *, queue: str = "default", rate: float = 50.0, seconds: float = 0.05, flaky: bool = True
) -> AsyncIterator[Enqueuer]:
    """Enqueue while the body runs; afterwards every call has its answer."""
    async with definitions(dsn) as app:
        enqueuer = Enqueuer(app, name, queue=queue, rate=rate, seconds=seconds, flaky=flaky)
        enqueuing = asyncio.create_task(enqueuer.enqueue_for_ever())
        try:
            yield enqueuer
        finally:
            enqueuing.cancel()
            await enqueuer.wait()
