"""Connections of other libraries: what is sent over one is part of its transaction, as over asyncpg's.

None of these libraries is imported here: who gives a connection of one has it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from rxjobs.errors import InvalidOption
from rxjobs.failure import qualified_name

KINDS = (
    "a connection of asyncpg or psycopg 3, a Session, AsyncSession, Connection or AsyncConnection of SQLAlchemy 2 over one of "
    "these, or Django's connection over psycopg 3"
)
TRANSACTION = "BEGIN", "COMMIT", "ROLLBACK"
SAVEPOINT = "SAVEPOINT rxjobs", "RELEASE rxjobs", "ROLLBACK TO rxjobs"
ASYNC_SESSION, ASYNC_CONNECTION = ("sqlalchemy.ext.asyncio", "AsyncSession"), ("sqlalchemy.ext.asyncio", "AsyncConnection")
SESSION, CONNECTION = ("sqlalchemy.orm", "Session"), ("sqlalchemy.engine", "Connection")
SCOPED, ASYNC_SCOPED = ("sqlalchemy.orm", "scoped_session"), ("sqlalchemy.ext.asyncio", "async_scoped_session")
DJANGO, DJANGO_PROXY = ("django.db.backends.base.base", "BaseDatabaseWrapper"), ("django.utils.connection", "ConnectionProxy")


async def joined(connection: Any) -> Any:
    """A connection as asyncpg's are used: `fetch`, `execute`, `is_in_transaction`. Raises InvalidOption for what is none.

    What is done over a synchronous one is done in the calling thread, which waits for it.
    """
    if connection is None or isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        return connection
    driver = await _driver(connection)
    if isinstance(driver, asyncpg.Connection):
        return driver
    if _is_a(driver, ("psycopg", "AsyncConnection")):
        return AsyncJoined(driver)
    if _is_a(driver, ("psycopg", "Connection")):
        return SyncJoined(driver)
    raise InvalidOption(f"connection= takes {KINDS}, not {_named(connection, driver)}")


def is_asynchronous(connection: Any) -> bool:
    """Whether what is sent over a connection has to be awaited."""
    kinds = ASYNC_SESSION, ASYNC_CONNECTION, ASYNC_SCOPED, ("psycopg", "AsyncConnection")
    return isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy) or any(
        _is_a(connection, kind) for kind in kinds
    )


def awaited_inside(connection: Any) -> Any:
    """What stands for an asynchronous driver in a synchronous connection: it has `run_async`, or is None.

    Such are the Session and the Connection that SQLAlchemy hands to `run_sync(...)`.
    """
    if _is_a(connection, SESSION) or _is_a(connection, SCOPED):
        connection = connection.connection()
    if not _is_a(connection, CONNECTION) or not connection.dialect.is_async:
        return None
    connection.exec_driver_sql("SELECT 1")
    return connection.connection.dbapi_connection


class Row(tuple[Any, ...]):
    """A row whose columns are found by place and by name."""

    names: dict[str, int]

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.names[key] if isinstance(key, str) else key)


class Joined:
    """A connection of psycopg, used as asyncpg's."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        """Run one statement; gives its rows."""
        raise NotImplementedError

    async def execute(self, sql: str) -> None:
        """Run one statement that gives no rows."""
        await self.fetch(sql)

    def is_in_transaction(self) -> bool:
        """Whether what is sent is part of a transaction: psycopg begins one by itself, unless it is to commit each statement."""
        return bool(self._driver.info.transaction_status) or not self._driver.autocommit


class AsyncJoined(Joined):
    """A psycopg.AsyncConnection."""

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        psycopg = sys.modules["psycopg"]
        async with psycopg.AsyncRawCursor(self._driver, row_factory=psycopg.rows.tuple_row) as cursor:
            await cursor.execute(sql, args or None)
            return _rows(cursor, await cursor.fetchall()) if cursor.description else []


class SyncJoined(Joined):
    """A psycopg.Connection."""

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        psycopg = sys.modules["psycopg"]
        with psycopg.RawCursor(self._driver, row_factory=psycopg.rows.tuple_row) as cursor:
            cursor.execute(sql, args or None)
            return _rows(cursor, cursor.fetchall()) if cursor.description else []


@asynccontextmanager
async def whole(connection: Any) -> AsyncIterator[None]:
    """What is inside happens as a whole or not at all, over a connection that was joined; it ends with the caller's transaction."""
    begin, commit, undo = SAVEPOINT if connection.is_in_transaction() else TRANSACTION
    await connection.execute(begin)
    try:
        yield
    except BaseException:
        await connection.execute(undo)
        raise
    await connection.execute(commit)


def _rows(cursor: Any, found: Sequence[tuple[Any, ...]]) -> list[Row]:
    kind = type("Row", (Row,), {"names": {column.name: place for place, column in enumerate(cursor.description)}})
    return [kind(row) for row in found]


async def _driver(connection: Any) -> Any:
    """The driver's own connection, in a transaction where its owner would have begun one."""
    if _is_a(connection, ASYNC_SESSION) or _is_a(connection, ASYNC_SCOPED):
        connection = await connection.connection()
    if _is_a(connection, ASYNC_CONNECTION):
        await connection.exec_driver_sql("SELECT 1")  # SQLAlchemy begins with its own first statement, and not before
        return (await connection.get_raw_connection()).driver_connection
    if _is_a(connection, SESSION) or _is_a(connection, SCOPED):
        connection = connection.connection()
    if _is_a(connection, CONNECTION):
        connection.exec_driver_sql("SELECT 1")
        return connection.connection.driver_connection
    if _is_a(connection, DJANGO) or _is_a(connection, DJANGO_PROXY):
        connection.ensure_connection()
        return connection.connection
    return connection


def _is_a(value: Any, kind: tuple[str, str]) -> bool:
    """Whether it is of a class of that name, in a module that somebody has imported."""
    module, name = kind
    found = getattr(sys.modules.get(module), name, None)
    return isinstance(found, type) and isinstance(value, found)


def _named(connection: Any, driver: Any) -> str:
    name = qualified_name(type(connection))
    return name if driver is connection else f"{name} over {qualified_name(type(driver))}"
