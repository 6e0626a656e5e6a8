"""A schema for each test: migrated once, and emptied for whoever is next, which is thirty times as fast as a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import uuid4

import asyncpg

from rxjobs.app import App
from rxjobs.errors import NotOpen
from rxjobs.store.migrate import migrate
from rxjobs.testing.under_test import is_open, under_test

T = TypeVar("T")

PREFIX = "rxjobs_test_"
LARGE = 8 * 1024 * 1024
"""Bytes from which on a table is emptied as a whole: for a small one that takes longer than to delete its rows."""
PATIENCE = "500ms"
"""How long a test that has left something open is waited for, before a new schema is made."""


@dataclass(frozen=True, slots=True)
class Database:
    """A migrated schema with nothing in it."""

    dsn: str
    schema: str

    @contextmanager
    def pointed(self, app: App) -> Iterator[App]:
        """Have an app work here, and as it did before afterwards. Raises NotOpen for one that is open."""
        if is_open(app):
            raise NotOpen("an app that is open cannot be moved to a test's database: open it, or run it, inside of the test")
        before = app.settings
        self._move(app, replace(before, dsn=self.dsn, schema=self.schema))
        with under_test(app):
            try:
                yield app
            finally:
                self._move(app, before)

    @staticmethod
    def _move(app: App, settings: Any) -> None:
        app.sync.close()
        app.circuits.forget()  # nothing that has failed there says anything of here
        app.settings = settings


class Schemas:
    """The schemas of one process on one server; dropped when it ends. It has a thread, a loop and a connection of its own."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rxjobs-schemas")
        self._runner = asyncio.Runner()
        self._made: list[str] = []
        self._connection: asyncpg.Connection[Any] | None = None

    def __enter__(self) -> Schemas:
        return self

    def __exit__(self, *raised: object) -> None:
        self._run(self._drop)
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()

    def take(self) -> Database:
        """A schema with nothing in it. The one before is emptied, unless somebody still has something open there."""
        return Database(self._dsn, self._run(self._take))

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._thread.submit(lambda: self._runner.run(work())).result()

    async def _take(self) -> str:
        connection = await self._open()
        if self._made:
            try:
                await _empty(connection, self._made[-1])
                return self._made[-1]
            except asyncpg.PostgresError:  # what a test did to it, or holds there
                pass
        schema = PREFIX + uuid4().hex
        self._made.append(schema)
        await migrate(connection, schema)
        return schema

    async def _open(self) -> asyncpg.Connection[Any]:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._dsn, server_settings={"application_name": "rxjobs tests"})
        return self._connection

    async def _drop(self) -> None:
        if not self._made:
            return
        connection = await self._open()
        for schema in self._made:
            await connection.execute(_END_ITS_SESSIONS, schema)
            await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        await connection.close()


async def _empty(connection: asyncpg.Connection[Any], schema: str) -> None:
    """Delete every row, and have ids begin at 1 again; raises PostgresError where another session is in the way."""
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{PATIENCE}'")
        tables = await connection.fetch(_TABLES, schema)
        names = [f'"{schema}"."{name}"' for name, _ in tables]
        large = [name for name, (_, size) in zip(names, tables, strict=True) if size > LARGE]
        small = [name for name in names if name not in large]
        statements = [f"DELETE FROM {name}" for name in small]  # noqa: S608 - names of our own
        if large:
            statements.append(f"TRUNCATE {', '.join(large)}")
        statements += [f"ALTER SEQUENCE {name} RESTART" for (name,) in await connection.fetch(_SEQUENCES, schema)]
        await connection.execute(";\n".join(statements))


_TABLES = """SELECT relname, pg_table_size(oid) FROM pg_class
WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND relname <> 'migrations'
ORDER BY relname"""

_SEQUENCES = """SELECT oid::regclass::text FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind = 'S'"""

_END_ITS_SESSIONS = """SELECT pg_terminate_backend(pid) FROM pg_locks
JOIN pg_class ON pg_class.oid = relation
WHERE relnamespace = $1::regnamespace AND pid <> pg_backend_pid()"""
