"""A worker process whose jobs say when they run: one file a process, by this machine's clock."""

from __future__ import annotations

import asyncio
import os
import time

import rxjobs as rj

ledger = os.open(os.environ["LEDGER"], os.O_APPEND | os.O_CREAT | os.O_WRONLY)
app = rj.App()


def note(what: str) -> None:
    """One line a fact, each by one write: whole also when this process is killed."""
    job = rj.current_job()
    os.write(ledger, f"{what} {job.id} {job.attempt} {time.time()}\n".encode())


@app.job(name="work")
async def work(seconds: float = 0.0, tenant: str = "") -> None:
    note("start")
    await asyncio.sleep(seconds)
    note("end")


if __name__ == "__main__":
    app.run(app.source("default", max_demand=20).pipe(rj.execute(concurrency=20), rj.ack()))
