"""What the tests of the store stand on: rows put there by SQL, and a look at them afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from rxjobs.store.migrate import migrate
from rxjobs.store.store import Store
from tests.servers import Databases

SCHEMA = "rxjobs"
CLAIMED_AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def a_shared_database(databases: Databases) -> Iterator[str]:
    """The DSN of a migrated database for many tests, each of which empties it first: that is ten times as fast as a new one."""

    async def migrate_it() -> None:
        await (await migrated(dsn)).close()

    dsn = databases.take()
    asyncio.run(migrate_it())
    yield dsn
    databases.give_back(dsn)


async def emptied(dsn: str) -> str:
    """A shared database without any row."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "TRUNCATE rxjobs.live_jobs, rxjobs.finished_jobs, rxjobs.nodes, rxjobs.leaders, rxjobs.queues, rxjobs.breakers, "
        "rxjobs.limits, rxjobs.limit_keys, rxjobs.gone_nodes, rxjobs.cron_entries, rxjobs.cron_slots, rxjobs.job_types "
        "RESTART IDENTITY"
    )
    await connection.close()
    return dsn


async def migrated(dsn: str, schema: str = SCHEMA) -> asyncpg.Connection[Any]:
    """A connection to a database whose schema is up to date."""
    connection = await asyncpg.connect(dsn)
    await migrate(connection, schema)
    return connection


async def a_row(connection: asyncpg.Connection[Any], **columns: Any) -> int:
    """Put one job into live_jobs; a claimed one names its `node` and `attempt`. Gives its id."""
    columns = {"type": "work", "queue": "default", **columns}
    names = ", ".join(columns)
    places = ", ".join(f"${place}" for place in range(1, len(columns) + 1))
    id_: int = await connection.fetchval(
        f"INSERT INTO rxjobs.live_jobs ({names}) VALUES ({places}) RETURNING id", *columns.values()
    )
    return id_


async def a_claimed_row(connection: asyncpg.Connection[Any], node: UUID, attempt: int = 1, **columns: Any) -> int:
    """Put one job there that a node executes, since CLAIMED_AT."""
    return await a_row(connection, state="executing", node=node, attempt=attempt, attempted_at=CLAIMED_AT, **columns)


async def a_node(connection: asyncpg.Connection[Any], *, seconds: float = 60.0, label: str = "") -> UUID:
    """A node whose lease ends so many seconds from now; below 0, it has ended."""
    node = uuid4()
    await connection.execute(
        "INSERT INTO rxjobs.nodes (id, label, pid, expires_at) VALUES ($1, $2, 1, now() + $3::float8 * interval '1 second')",
        node, label, seconds,
    )  # fmt: skip
    return node


async def the_row(connection: asyncpg.Connection[Any], id_: int) -> asyncpg.Record:
    """What the view says of a job."""
    row = await connection.fetchrow("SELECT * FROM rxjobs.jobs WHERE id = $1", id_)
    assert row is not None, f"job {id_} is gone"
    return row


async def states(connection: asyncpg.Connection[Any], ids: Iterable[int]) -> list[str]:
    """The states of jobs, in the order of the ids."""
    found = dict(await connection.fetch("SELECT id, state FROM rxjobs.jobs WHERE id = ANY ($1::bigint[])", list(ids)))
    return [found.get(id_, "gone") for id_ in ids]


async def a_leader(connection, node=None, term=1, seconds=600.0) -> tuple[UUID, int]:
    """A node that leads, and its term."""
    node = node or uuid4()
    await connection.execute(
        f"INSERT INTO {SCHEMA}.leaders VALUES ('maintenance', $1, $2, now() + $3::float8 * interval '1 second') "
        "ON CONFLICT (role) DO UPDATE SET node = $1, term = $2, expires_at = excluded.expires_at",
        node, term, seconds,
    )  # fmt: skip
    return node, term


async def rescue_some(store: Store, node: UUID, limit: int, leader: UUID, term: int, delay: float = 60.0) -> set[int]:
    """Take up to so many jobs from a node, as the service does."""
    rows = await store.held_by(node, limit)
    ids, attempts = [row["id"] for row in rows], [row["attempt"] for row in rows]
    return await store.rescue_jobs(node, ids, attempts, [delay] * len(rows), leader, term)


FAILS_TWICE = """
CREATE SEQUENCE rxjobs.failures;
CREATE FUNCTION rxjobs.fail_twice() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('rxjobs.failures') <= 2 THEN
        RAISE EXCEPTION 'could not serialize access due to concurrent update' USING ERRCODE = '40001';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER fail_twice BEFORE UPDATE ON rxjobs.live_jobs FOR EACH ROW EXECUTE FUNCTION rxjobs.fail_twice();
"""
"""An update of jobs that runs twice into the error of a concurrent one, and then no more."""
