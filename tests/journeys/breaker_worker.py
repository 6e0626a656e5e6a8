"""A worker process whose jobs depend on something that is down as long as a file is there; a ledger says what ran."""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

import rxjobs as rj

ledger = os.open(os.environ["LEDGER"], os.O_APPEND | os.O_CREAT | os.O_WRONLY)
down = Path(os.environ["DOWN"])
app = rj.App()
breaker = rj.Breaker(
    fail_max=int(os.environ.get("FAIL_MAX", "5")),
    reset_timeout=float(os.environ.get("RESET", "2")),
    probes=int(os.environ.get("PROBES", "1")),
)


def note(what: str) -> None:
    job = rj.current_job()
    os.write(ledger, f"{what} {job.id} {job.attempt} {datetime.now(UTC).timestamp()}\n".encode())


@app.job(name="fragile", breaker=breaker, backoff=lambda attempt, error: 0.0)
async def fragile(seconds: float = 0.0) -> None:
    note("start")
    await asyncio.sleep(seconds)
    note("end")
    if os.path.exists(down):  # noqa: ASYNC240 - a look takes no time
        raise ConnectionError("down")


@app.job(name="sturdy")
async def sturdy() -> None:
    note("sturdy")


if __name__ == "__main__":
    app.run(app.source(os.environ.get("QUEUE", "default"), max_demand=20).pipe(rj.execute(concurrency=10), rj.ack()))
