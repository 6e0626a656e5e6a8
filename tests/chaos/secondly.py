"""A worker process with entries of cron that are due all the time; nobody runs what they make, so that it stays as it was made."""

from __future__ import annotations

from tests.chaos.worker import app, run

__all__ = ["run"]


@app.job(name="tick", queue="nobodys")
async def tick() -> None: ...


@app.job(name="tock", queue="nobodys")
async def tock() -> None: ...


# where nothing has led for a minute, on a machine with much else to do, what was missed is made up for
app.cron("* * * * * *", tick.new(), missed="all")
app.cron("*/2 * * * * *", tock.new(), tz="Australia/Lord_Howe", missed="all")
