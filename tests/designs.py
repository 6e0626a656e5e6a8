"""How fast jobs can be claimed and acknowledged in each of the table designs that were thought of: `make designs`.

No job is run: one connection claims, another acknowledges the batch before, as a worker does. The statements are the product's
own, or differ from them in nothing but where rows go. Each design has states, unique keys and the fenced ack. Run by hand, on an
embedded PostgreSQL or on the one that `--dsn` names; docs/design/storage.md has what was found.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import asyncpg
from rich.console import Console
from rich.table import Table

import rxjobs as rj
from rxjobs.serving import run
from rxjobs.store.encoding import instant
from rxjobs.store.statements import statement
from rxjobs.store.store import FROM_THE_START
from rxjobs.testing import fill

SCHEMA = "rxjobs_designs"
UNIQUE = """
    ALTER TABLE {schema}.live_jobs ADD COLUMN unique_key text;
    CREATE UNIQUE INDEX live_jobs_unique ON {schema}.live_jobs (unique_key) WHERE unique_key IS NOT NULL {unless};
"""
SINGLE = """
    ALTER TABLE {schema}.live_jobs DROP CONSTRAINT live_jobs_state_check, ADD COLUMN finished_at timestamptz,
        ADD COLUMN forensics jsonb, ADD COLUMN result json;
    ALTER TABLE {schema}.live_jobs SET (fillfactor = 50);
    CREATE INDEX live_jobs_finished_at ON {schema}.live_jobs USING brin (finished_at) WITH (autosummarize = on);
"""
SINGLE_ACK = """
    UPDATE {schema}.live_jobs
    SET state = 'completed', finished_at = now()
    WHERE id = ANY ($1::bigint[]) AND attempt = $3 AND node = $2 AND state = 'executing'
    RETURNING id
"""
FULL_INDEX = """
    DROP INDEX {schema}.live_jobs_ready, {schema}.live_jobs_pending;
    CREATE INDEX live_jobs_ready ON {schema}.live_jobs (state, queue, priority, scheduled_at, id);
"""


@dataclass(frozen=True)
class Design:
    """Where rows go: what is changed after the product's own migration, and its ack, if that differs."""

    what: str
    changes: str = ""
    ack: str | None = None
    unless: str = ""
    finished: str = "finished_jobs"


DONE = "AND state NOT IN ('completed', 'discarded', 'cancelled')"
DESIGNS = {
    "live + history": Design("one live table, an ack moves the row to an append-only history"),
    "one table": Design("one table, partial index on ready rows, an ack is an update", SINGLE, SINGLE_ACK, DONE, "live_jobs"),
    "full index": Design(
        "the same, with one index over (state, queue, priority, …)", SINGLE + FULL_INDEX, SINGLE_ACK, DONE, "live_jobs"
    ),
}


@dataclass
class Found:
    """Jobs a second; milliseconds a claim and an ack of one batch takes (medians); bytes of WAL a job."""

    rate: float
    claim: float
    ack: float
    wal: float


@asynccontextmanager
async def set_up(dsn: str, design: Design):
    """A connection to a schema of this design."""
    app = rj.App(dsn, schema=SCHEMA, migrate=True)
    async with app:
        connection = await asyncpg.connect(app.dsn)
        await connection.execute((design.changes + UNIQUE).format(schema=SCHEMA, unless=design.unless))
        try:
            yield app.dsn, connection
        finally:
            await connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
            await connection.close()


async def fill_up(connection: Any, design: Design, ready: int, finished: int) -> None:
    """So many jobs of each kind, a tenth of the ready ones with a unique key; then the server is settled."""
    await connection.execute(f"TRUNCATE {SCHEMA}.live_jobs, {SCHEMA}.finished_jobs RESTART IDENTITY")
    if finished:
        await fill(connection, "noop", finished, args={"n": 0}, state="completed", schema=SCHEMA)
    if finished and design.finished == "live_jobs":
        columns = "id, inserted_at, scheduled_at, attempted_at, state, attempt, max_attempts, priority, node, type, queue, args"
        columns += ", finished_at"
        await connection.execute(
            f"INSERT INTO {SCHEMA}.live_jobs ({columns}) SELECT {columns} FROM {SCHEMA}.finished_jobs", timeout=600
        )
        await connection.execute(f"TRUNCATE {SCHEMA}.finished_jobs")
    await fill(connection, "noop", ready, args_sql="jsonb_build_object('n', n)", schema=SCHEMA)
    await connection.execute(
        f"UPDATE {SCHEMA}.live_jobs SET unique_key = 'key ' || id WHERE id % 10 = 0 AND state = 'available'", timeout=600
    )
    await connection.execute(f"VACUUM ANALYZE {SCHEMA}.live_jobs", timeout=600)
    await connection.execute("CHECKPOINT", timeout=600)


async def drain(
    dsn: str, connection: Any, design: Design, batch: int, most: int, more: Callable[[int], Awaitable[Any]] | None = None
) -> Found:
    """Claim and ack up to `most` jobs, the next batch claimed while the last is acked; `more` adds as many as were claimed."""
    node = uuid4()
    await connection.execute(
        f"INSERT INTO {SCHEMA}.nodes (id, label, pid, expires_at) VALUES ($1, 'bench', 0, now() + interval '1 hour')", node
    )
    acking = await asyncpg.connect(dsn)
    claim = await connection.prepare(statement("fetch_jobs_where", SCHEMA))
    ack = await acking.prepare(design.ack.format(schema=SCHEMA) if design.ack else statement("ack_completed", SCHEMA))
    marks = FROM_THE_START
    claims, acks = list[float](), list[float]()

    async def claim_some() -> Sequence[Any]:
        nonlocal marks
        began = time.perf_counter()
        rows = await claim.fetch("default", batch, ["noop"], node, [], "{}", 2**21, *marks)
        claims.append(time.perf_counter() - began)
        if rows:  # a low-water mark, as the product keeps one
            last = max((instant(row["scheduled_at"]), row["id"]) for row in rows)
            marks = (last[0], *marks[0][1:]), (last[1], *marks[1][1:])
        return rows

    async def ack_some(rows: Sequence[Any]) -> None:
        began = time.perf_counter()
        acked = await ack.fetch([row["id"] for row in rows], node, 1)
        acks.append(time.perf_counter() - began)
        assert len(acked) == len(rows)
        if more is not None:
            await more(len(rows))

    wal = await connection.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
    began, done = time.perf_counter(), 0
    rows = await claim_some()
    while rows:
        done += len(rows)
        following = claim_some() if done < most else asyncio.sleep(0, [])
        _, rows = await asyncio.gather(ack_some(rows), following)
    took = time.perf_counter() - began
    wal = float(await connection.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn") - wal)
    await acking.close()
    return Found(done / took, median(claims) * 1e3, median(acks) * 1e3, wal / done)


async def churn(dsn: str, connection: Any, design: Design, jobs: int) -> None:
    """Let jobs come and go for a while, with autovacuum on its own."""
    adding = await asyncpg.connect(dsn)
    insert = statement("insert_alike", SCHEMA)

    async def more(count: int) -> None:
        await adding.fetch(insert, "noop", "default", ['{"n": 0}'] * count, 0, 20, None, None, 0.0, None, None)

    await drain(dsn, connection, design, 500, jobs, more)
    await adding.close()


async def main(dsn: str, scale: float, rounds: int) -> None:
    def size(count: int) -> int:
        return max(1_000, int(count * scale))

    table = Table("case", *DESIGNS, title="jobs a second (claim ms / ack ms / WAL bytes a job), median of the rounds")
    cases = [
        ("100,000 ready, batch 50", size(100_000), 0, 50, 0),
        ("1,000 ready, batch 500", 1_000, 0, 500, 0),
        ("100,000 ready, batch 500", size(100_000), 0, 500, 0),
        ("1,000,000 ready, batch 500", size(1_000_000), 0, 500, 0),
        ("1,000,000 finished, batch 500", size(100_000), size(1_000_000), 500, 0),
        ("1,000,000 came and went, batch 500", size(100_000), 0, 500, size(1_000_000)),
    ]
    found: dict[tuple[str, str], list[Found]] = {}
    for round_ in range(rounds):
        for name, design in DESIGNS.items():
            async with set_up(dsn, design) as (where, connection):
                for case, ready, finished, batch, churned in cases:
                    Console(stderr=True).print(f"round {round_ + 1}: {name}: {case}")
                    await fill_up(connection, design, ready, finished)
                    if churned:
                        await churn(where, connection, design, churned)
                    found.setdefault((case, name), []).append(
                        await drain(where, connection, design, batch, min(ready, size(60_000)))
                    )
    for case, *_ in cases:
        table.add_row(case, *(_shown(found[case, name]) for name in DESIGNS))
    Console(width=160).print(table)


def _shown(found: Sequence[Found]) -> str:
    def middle(of: Callable[[Found], float]) -> float:
        return median(map(of, found))

    return (
        f"{middle(lambda one: one.rate):,.0f} ({middle(lambda one: one.claim):.1f} / {middle(lambda one: one.ack):.1f} / "
        f"{middle(lambda one: one.wal):,.0f})"
    )


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--dsn")
    options.add_argument("--scale", type=float, default=1.0, help="of all sizes; 0.01 for a try")
    options.add_argument("--rounds", type=int, default=1)
    asked = options.parse_args()
    with TemporaryDirectory(prefix="rxjobs-designs-") as folder:
        Path(folder).chmod(0o755)
        run(main(asked.dsn or f"embedded://{folder}/data", asked.scale, asked.rounds))
