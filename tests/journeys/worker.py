"""A worker process as a user would write it: settings from RXJOBS_*, and a ledger of what ran, outside of the database."""

import asyncio
import atexit
import os
import time
from contextlib import suppress
from datetime import UTC, datetime

import rxjobs as rj

ledger = os.open(os.environ["LEDGER"], os.O_APPEND | os.O_CREAT | os.O_WRONLY)
app = rj.App()


def note(what: str) -> None:
    """One line a fact, each by one write: whole also when this process is killed."""
    job = rj.current_job()
    os.write(ledger, f"{what} {job.id} {job.attempt} {datetime.now(UTC).timestamp()}\n".encode())


@app.job(name="work")
async def work(seconds: float = 0.0) -> None:
    note("start")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("cancelled")
        raise
    note("end")


@app.job(name="thread")
def thread(seconds: float = 0.0) -> None:
    note("start")
    time.sleep(seconds)
    note("end")


@app.job(name="watched")
def watched(seconds: float = 0.0) -> None:
    """A thread that looks whether it is to stop, and says how far it is."""
    note("start")
    job, begin = rj.current_job(), time.monotonic()
    while (passed := time.monotonic() - begin) < seconds:
        job.progress(passed / seconds, f"{passed:.2f} s")
        if job.cancelled:
            note("cancelled")
            return
        time.sleep(0.02)
    note("end")


@app.job(name="block")
async def block(seconds: float = 0.0) -> None:
    """A bad citizen: it holds up the whole event loop."""
    note("start")
    time.sleep(seconds)  # noqa: ASYNC251 - that is the point
    note("end")


@app.job(name="helped")
async def helped(seconds: float = 0.0) -> None:
    """It leaves a thread behind when it is cancelled."""
    note("start")
    await asyncio.to_thread(time.sleep, seconds)
    note("end")


@app.job(name="stubborn")
async def stubborn(seconds: float = 0.0) -> None:
    """It takes no wish to stop."""
    note("start")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(end - time.monotonic())
    note("end")


app.job(name="stubborn_in_time", timeout=0.3, breaker=None)(stubborn.function)
app.job(name="thread_in_time", timeout=0.3, breaker=None, executor=rj.in_threads(4))(thread.function)

if __name__ == "__main__":
    atexit.register(print, "at exit")
    app.run(app.source("default", max_demand=int(os.environ.get("MAX_DEMAND", "40"))).pipe(rj.execute(concurrency=20), rj.ack()))
