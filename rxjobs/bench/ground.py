"""The database that the bench measures on: a schema of its own, which is there for as long as the bench runs."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import asyncpg

from rxjobs.bench import raw
from rxjobs.bench.program import Program, ours, started
from rxjobs.bench.said import Order, Runner
from rxjobs.errors import InvalidOption
from rxjobs.settings import SCHEMA
from rxjobs.store import migrate
from rxjobs.store.connection import take_leave
from rxjobs.store.database import Connection, Database
from rxjobs.store.served import is_embedded, served
from rxjobs.testing import fill

MARK = "made by rxjobs bench, dropped when it ends"
"""The comment on a schema that says whose it is: no other is dropped."""
LONG_SECONDS = 900.0
"""How long a statement may take: a million rows are put in by one."""


class Ground:
    """The schema, its rows, and a connection to look at them."""

    def __init__(self, dsn: str, schema: str, connection: Connection, *, ours: bool, python: str = sys.executable) -> None:
        self.dsn = dsn
        self.schema = schema
        self._connection = connection
        self._ours = ours
        self._python = python

    def started(self, name: str, order: Order) -> AbstractAsyncContextManager[Program]:
        """A program that is measured on this ground."""
        return started(ours(self._python, name), order)

    async def lay(self, runner: Runner, type: str, count: int) -> None:
        """Have so many jobs ready and no other rows, and the tables as autovacuum leaves them."""
        await self.clear()
        if count:
            await self.add(runner, type, count)
        await self._execute("VACUUM ANALYZE {schema}.live_jobs, {schema}.finished_jobs, {schema}.raw_ready, {schema}.raw_running")
        if self._ours:
            # on somebody else's server it is not for us to ask for it
            await self._execute("CHECKPOINT")

    async def clear(self) -> None:
        """Remove all rows."""
        await self._execute(
            "TRUNCATE {schema}.live_jobs, {schema}.finished_jobs, {schema}.nodes, {schema}.leaders, "
            "{schema}.raw_ready, {schema}.raw_running, {schema}.raw_finished"
        )

    async def add(self, runner: Runner, type: str, count: int) -> None:
        """Have so many more jobs ready. Nobody is told."""
        if runner == "raw":
            await raw.fill(self._connection, self.schema, type, count)
        else:
            await fill(self._connection, type, count, args_sql="json_build_object('number', n)", schema=self.schema)

    async def finished(self, runner: Runner) -> int:
        """How many jobs are finished."""
        table = "raw_finished" if runner == "raw" else "finished_jobs"
        count: int = await self._connection.fetchval(f"SELECT count(*) FROM {self.schema}.{table}")  # noqa: S608 - a checked name
        return count

    async def settings(self) -> dict[str, str]:
        """What the server is, and how it is set up as far as it decides on speed."""
        names = ("server_version", "shared_buffers", "max_wal_size", "fsync", "synchronous_commit", "full_page_writes")
        return {name: str(await self._connection.fetchval("SELECT current_setting($1)", name)) for name in names}

    async def _execute(self, sql: str) -> None:
        await self._connection.execute(sql.replace("{schema}", self.schema))


@asynccontextmanager
async def prepared(dsn: str | None, schema: str, python: str = sys.executable) -> AsyncIterator[Ground]:
    """A schema of the bench's own, held against other benches, dropped at the end; raises InvalidOption or NoDatabase.

    `python` is what runs the programs that are measured.
    """
    if not SCHEMA.fullmatch(schema):
        raise InvalidOption(f"schema is a lower-case PostgreSQL name of at most 48 characters, not {schema!r:.100}")
    async with served(dsn) as reached:
        # this one says what is wrong with a DSN, but gives each statement only a few seconds
        await (await Database(reached).connect_now()).close()
        connection = await asyncpg.connect(
            reached, command_timeout=LONG_SECONDS, server_settings={"application_name": "rxjobs bench"}
        )
        try:
            await _take(connection, schema)
            await _make_anew(connection, schema)
            try:
                yield Ground(reached, schema, connection, ours=is_embedded(dsn), python=python)
            finally:
                await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        finally:
            await take_leave(connection)


async def _take(connection: Connection, schema: str) -> None:
    # a lock of the session, so that it goes with a bench that was killed
    if not await connection.fetchval("SELECT pg_try_advisory_lock(hashtextextended('rxjobs bench ' || $1, 0))", schema):
        raise InvalidOption(f"another bench uses the schema {schema} of this database now: wait for it, or give another --schema")


async def _make_anew(connection: Connection, schema: str) -> None:
    found = await connection.fetchrow(
        "SELECT obj_description(oid, 'pg_namespace') AS mark FROM pg_namespace WHERE nspname = $1", schema
    )
    if found is not None and found["mark"] != MARK:
        raise InvalidOption(f"the schema {schema} was not made by the bench, which would drop it: give another with --schema")
    try:
        await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        await connection.execute(f"CREATE SCHEMA {schema}; COMMENT ON SCHEMA {schema} IS '{MARK}'")
    except asyncpg.PostgresError as error:
        raise InvalidOption(f"the schema {schema} could not be made in this database: {error}") from error
    await migrate.migrate(connection, schema)
    await connection.execute(raw.statement(raw.TABLES, schema))
