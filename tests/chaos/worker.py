"""A worker process that is meant to be ill-treated: two queues, and a ledger of every attempt outside of the database."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

import rxjobs as rj

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""One for all processes, which goes on while they are stopped."""

ledger = os.open(f"{os.environ['LEDGERS']}/{os.getpid()}", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
app = rj.App()


def note(what: str) -> None:
    """One line a fact, each by one write: whole also when this process is killed."""
    job = rj.current_job()
    line = f"{what} {job.id} {job.attempt} {os.getpid()} {time.clock_gettime_ns(CLOCK)} {job.queue}\n"
    os.write(ledger, line.encode())


@contextmanager
def noted() -> Iterator[None]:
    """Note the start of an attempt, and its end: `stop` where it was asked to stop."""
    note("start")
    try:
        yield
    except asyncio.CancelledError:
        note("stop")
        raise
    except BaseException:
        note("end")
        raise
    note("end")


@app.job(name="work", max_attempts=50, backoff=lambda attempt, error: 0.2)
async def work(key: str, seconds: float = 0.0) -> None:
    with noted():
        await asyncio.sleep(seconds)


@app.job(name="gated", max_attempts=50)
async def gated(key: str, gate: str, seconds: float) -> None:
    """Runs until a file is there, and for so long after."""
    with noted():
        while not os.path.exists(gate):  # noqa: ASYNC110, ASYNC240 - whoever makes it is another process
            await asyncio.sleep(0.02)
        await asyncio.sleep(seconds)


@app.job(name="tidy")
async def tidy(key: str, seconds: float = 0.0) -> None:
    """Takes a moment to end once it is asked to, and notes each time that it is."""
    note("start")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("stop")
        try:
            await asyncio.sleep(0.3)
        except asyncio.CancelledError:
            note("stop")
        raise
    note("end")


@app.job(name="nothing")
async def nothing() -> None:
    """What is not even noted, as there are to be very many."""


@app.job(name="flaky", max_attempts=50, backoff=lambda attempt, error: 0.2, breaker=None)
async def flaky(key: str) -> None:
    """Fails the first time, asks for more time the second."""
    with noted():
        if rj.current_job().attempt == 1:
            raise ValueError("not yet")


@app.job(name="thread", max_attempts=50)
def thread(key: str, seconds: float = 0.0) -> None:
    with noted():
        time.sleep(seconds)


@app.job(name="block")
async def block(key: str, seconds: float) -> None:
    """A bad citizen: it holds up the whole event loop."""
    with noted():
        time.sleep(seconds)  # noqa: ASYNC251 - that is the point


@app.job(name="crash", max_attempts=3, executor=rj.in_processes(2), backoff=lambda attempt, error: 0.2, breaker=None)
def crash(key: str) -> None:
    note("start")
    note("crash")  # first: nobody does so afterwards. It is no end, and comes again where the attempt is given back
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(name="child", executor=rj.in_processes(2))
def child(key: str, seconds: float) -> None:
    with noted():
        time.sleep(seconds)


@app.job(name="greedy")
async def greedy(key: str, calls: int) -> None:
    """Holds every connection of the pool for as long as the server takes to answer."""
    with noted():
        await asyncio.gather(*(app.enqueue_many([late.new(key=f"{key}/{n}")]) for n in range(calls)))


@app.job(name="late")
async def late(key: str) -> None:
    """To insert one takes long: see Ground."""
    with noted():
        pass


@app.job(name="timed", timeout=1.0, max_attempts=1, breaker=None)
async def timed(key: str, seconds: float) -> None:
    with noted():
        await asyncio.sleep(seconds)


@app.job(name="fragile", max_attempts=50, backoff=lambda attempt, error: 0.1, breaker=rj.Breaker(fail_max=3, reset_timeout=2.0))
async def fragile(key: str) -> None:
    """Fails so often that its breaker opens, and once more as a probe."""
    with noted():
        if rj.current_job().attempt < 5:
            raise ConnectionError("it is away")


@app.job(name="storm", breaker=None)
async def storm() -> None:
    """Fails whenever it runs, and has the backoff that everybody gets."""
    raise ConnectionError("it is away")


@app.job(name="once", max_attempts=50, backoff=lambda attempt, error: 0.2, breaker=None)
async def once(key: str, seconds: float) -> None:
    """Writes one row, and that it is done, in one transaction."""
    connection = await asyncpg.connect(os.environ["RXJOBS_DSN"])
    try:
        async with connection.transaction():
            await connection.execute("INSERT INTO public.effects (key) VALUES ($1)", key)
            await asyncio.sleep(seconds)
            await rj.complete_in(connection)
            await asyncio.sleep(seconds)
        await asyncio.sleep(seconds)
    finally:
        connection.terminate()


class Raising(logging.Handler):
    """What a user's logging may do."""

    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("this handler does not work")


class Stamped(logging.Formatter):
    """Records with the instant of the ledgers, so that both can be read side by side."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{time.clock_gettime_ns(CLOCK)} {super().format(record)}"


def run() -> None:
    """Run it as the variables say."""
    if os.environ.get("STAMPED"):
        handler = logging.StreamHandler()
        handler.setFormatter(Stamped())
        logging.basicConfig(level=logging.INFO, handlers=[handler])
    if os.environ.get("HANDLER") == "raises":
        logging.getLogger().addHandler(Raising())
    sides = {"default": int(os.environ.get("SLOTS", "20")), "healthy": 5}
    app.run(
        *(
            app.source(queue, max_demand=2 * slots).pipe(rj.execute(concurrency=slots), rj.ack())
            for queue, slots in sides.items()
            if queue in os.environ.get("QUEUES", "default healthy").split()
        )
    )


if __name__ == "__main__":
    run()
    sys.exit(0)
