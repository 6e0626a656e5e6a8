"""The database that the demo runs on: a schema of its own, made anew at each start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from rxjobs.errors import InvalidOption
from rxjobs.settings import SCHEMA
from rxjobs.store.connection import take_leave
from rxjobs.store.database import Connection, Database
from rxjobs.store.served import served

MARK = "made by rxjobs demo, dropped at its next start"
"""The comment on a schema that says whose it is: no other is dropped."""


@asynccontextmanager
async def prepared(dsn: str, schema: str) -> AsyncIterator[Database]:
    """An open database with an empty schema of the demo's own, held against other demos; raises InvalidOption or NoDatabase."""
    if not SCHEMA.fullmatch(schema):
        raise InvalidOption(f"schema is a lower-case PostgreSQL name of at most 48 characters, not {schema!r:.100}")
    async with served(dsn) as reached:
        database = Database(reached)
        await database.open()
        try:
            connection = await database.connect()
            try:
                await _take(connection, schema)
                await _make_anew(connection, schema)
                yield database
            finally:
                await take_leave(connection)
        finally:
            await database.close()


async def _take(connection: Connection, schema: str) -> None:
    # a lock of the session, so that it goes with a demo that was killed
    if not await connection.fetchval("SELECT pg_try_advisory_lock(hashtextextended('rxjobs demo ' || $1, 0))", schema):
        raise InvalidOption(f"another demo uses the schema {schema} of this database now: wait for it, or give another --schema")


async def _make_anew(connection: Connection, schema: str) -> None:
    try:
        async with connection.transaction():
            found = await connection.fetchrow(
                "SELECT obj_description(oid, 'pg_namespace') AS mark FROM pg_namespace WHERE nspname = $1", schema
            )
            if found is not None and found["mark"] != MARK:
                raise InvalidOption(
                    f"the schema {schema} was not made by the demo, which would drop it: give another with --schema"
                )
            await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
            await connection.execute(f"CREATE SCHEMA {schema}")
            await connection.execute(f"COMMENT ON SCHEMA {schema} IS '{MARK}'")
    except asyncpg.PostgresError as error:
        raise InvalidOption(f"the schema {schema} could not be made in this database: {error}") from error
