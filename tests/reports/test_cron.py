"""What befell others with jobs that come again. See docs/faults.md."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise

import asyncpg

import rxjobs as rj
from rxjobs import node
from tests.waiting import until

DECLARED = """
import rxjobs as rj

app = rj.App("postgresql://nowhere/nothing")

@app.job(name="tick", unique=rj.Unique())
async def tick(n: int = 0, tags: list[str] = []) -> None: ...

app.cron("0 8 * * *", tick.new(n=1), tz="Europe/Berlin")
app.cron("0 8 * * *", tick.new(n=2, tags=["a", "b"]), tz="Europe/Berlin")
print(app.cron.columns(), tick.new(n=3, tags=["c"]).unique)
"""
SLOTS = "SELECT scheduled_at FROM rxjobs.jobs WHERE type = 'tick' ORDER BY scheduled_at"


def test_entries_and_keys_are_named_alike_in_every_process():
    """As oban-py v0.6.0: names were made of what each process salts by itself."""
    said = {
        subprocess.run(
            [sys.executable, "-c", DECLARED],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }
    (one,) = said
    assert "tick 0 8 * * * Europe/Berlin #2" in one


async def test_a_question_of_cron_that_fails_twenty_times_costs_no_slot(dsn, monkeypatch):
    """As graphile-worker v0.17.0, which gave up after some errors, and looked healthy."""
    monkeypatch.setattr(node.supervise, "__defaults__", ((0.01, 0.1),))
    app, asked = rj.App(dsn, migrate=True, leader_seconds=1), 0

    @app.job(name="tick")
    async def tick() -> None: ...

    app.cron("* * * * * *", tick.new(), missed="all")
    async with app:
        read = app.store.read_crons

        async def fails():
            nonlocal asked
            asked += 1
            if asked <= 20:
                raise ValueError("no")
            return await read()

        monkeypatch.setattr(app.store, "read_crons", fails)
        connection = await asyncpg.connect(dsn)
        async with app.running():
            await until(lambda: connection.fetchval("SELECT count(*) >= 2 FROM rxjobs.jobs WHERE type = 'tick'"))
        found = [row["scheduled_at"] for row in await connection.fetch(SLOTS)]
        await connection.close()
    assert asked > 20
    assert all((second - first).total_seconds() == 1 for first, second in pairwise(found))
