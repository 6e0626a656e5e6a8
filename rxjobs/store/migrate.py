"""Bring the schema up to date: numbered steps, each once, one node at a time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import asyncpg

from rxjobs.errors import NotMigrated, SchemaTooNew
from rxjobs.log_lines import logger
from rxjobs.store.database import Database
from rxjobs.store.served import served
from rxjobs.store.statements import FOLDER, with_schema

log = logger("rxjobs.database")

LOCK_TIMEOUT = "3s"
"""How long to wait for a lock at a time: whatever asks for the same table waits behind the one who waits."""
BACK_OFF = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds until each further try, at most."""
STEP_TIMEOUT = 3600.0
"""Seconds that a step may take on tables that are large."""
ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended('rxjobs.' || $1, 0))"
SERIES = 1000
"""Steps of one thousand only add to what is there, so that the code of any of them works with the schema of any later one."""


def steps() -> list[tuple[int, str, str]]:
    """The migrations in order: number, name, SQL with {schema} in it."""
    found = sorted(path.name for path in FOLDER.joinpath("migrations").iterdir() if path.name.endswith(".sql"))
    return [(int(name[:4]), name[5:-4], FOLDER.joinpath("migrations", name).read_text("utf-8")) for name in found]


def script(schema: str) -> str:
    """All migrations as one SQL script, for those who run SQL by hand."""
    parts = ["BEGIN;", with_schema(_GROUND, schema)]
    for number, name, sql in steps():
        parts += [with_schema(sql, schema), with_schema(_done(number, name), schema)]
    return "\n".join([*parts, "COMMIT;", ""])


async def migrate(connection: asyncpg.Connection[Any], schema: str) -> list[str]:
    """Run the migrations that are missing, in one transaction under a lock; gives their names. Raises SchemaTooNew.

    Raises LockNotAvailableError where others keep the locks that it needs, at every one of a few tries.
    """
    for delay in BACK_OFF:
        try:
            return await _migrate(connection, schema)
        except asyncpg.LockNotAvailableError as error:
            log.warning("schema %r could not be migrated, and that is tried again: %s", schema, error)
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
    return await _migrate(connection, schema)


async def _migrate(connection: asyncpg.Connection[Any], schema: str) -> list[str]:
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        await connection.execute(ONE_AT_A_TIME, schema)
        await connection.execute(with_schema(_GROUND, schema))
        done = await _version(connection, schema) or 0
        _refuse_newer(done, schema)
        missing = [step for step in steps() if step[0] > done]
        for number, name, sql in missing:
            await connection.execute(with_schema(sql, schema), timeout=STEP_TIMEOUT)
            await connection.execute(with_schema(_done(number, name), schema))
    return [name for _, name, _ in missing]


async def migrate_at(dsn: str | None, schema: str) -> list[str]:
    """As migrate, over a connection of its own; the embedded server is started for it where that is meant."""
    async with served(dsn) as here:
        connection = await Database(here).connect_now()
        try:
            return await migrate(connection, schema)
        finally:
            await connection.close()


async def make_ready(database: Database, schema: str, *, migrates: bool) -> None:
    """Have a schema that an app can work with, brought up to date if it `migrates`; raises what `check` does."""
    connection = await database.connect_now()
    try:
        if migrates:
            await migrate(connection, schema)
        await check(connection, schema)
    finally:
        await connection.close()


async def check(connection: asyncpg.Connection[Any], schema: str) -> None:
    """Refuse a schema that this code cannot work with; raises NotMigrated or SchemaTooNew."""
    newest = steps()[-1][0]
    version = await _version(connection, schema)
    if version is None:
        raise NotMigrated(f"schema {schema!r} is not there: run `rxjobs migrate`, or await app.migrate(), or App(migrate=True)")
    _refuse_newer(version, schema)
    if version < newest:
        raise NotMigrated(
            f"schema {schema!r} is at version {version} and this code needs {newest}: run `rxjobs migrate`, or await app.migrate()"
        )


_GROUND = """CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);"""


def _done(number: int, name: str) -> str:
    return f"INSERT INTO {{schema}}.migrations (version, name) VALUES ({number}, '{name}');"  # noqa: S608 - from our own files


async def _version(connection: asyncpg.Connection[Any], schema: str) -> int | None:
    try:
        async with connection.transaction():
            version: int | None = await connection.fetchval(with_schema("SELECT max(version) FROM {schema}.migrations", schema))
            return version or 0
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return None


def _refuse_newer(version: int, schema: str) -> None:
    newest = steps()[-1][0]
    if version // SERIES > newest // SERIES:
        raise SchemaTooNew(
            f"schema {schema!r} is at version {version}, of a newer rxjobs; this one knows {newest}: upgrade rxjobs on this node"
        )
