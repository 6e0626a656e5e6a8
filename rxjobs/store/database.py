"""Connections to PostgreSQL: one pool for statements, and one of its own for whoever has to stay connected."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from rxjobs.errors import NoDatabase
from rxjobs.store.patience import passes

CONNECT_TIMEOUT = 10.0
STATEMENT_TIMEOUT = 10.0
POOL_SIZE = 10

Connection = Any
"""An asyncpg connection, or a pool's stand-in for one."""


class Database:
    """A PostgreSQL database and the connections to it."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._pool: asyncpg.Pool[Any] | None = None

    async def open(self) -> None:
        """Connect; raises NoDatabase where nothing answers, or not to us."""
        try:
            self._pool = await asyncpg.create_pool(
                self.dsn,
                min_size=1,
                max_size=POOL_SIZE,
                timeout=CONNECT_TIMEOUT,
                command_timeout=STATEMENT_TIMEOUT,
                reset=_keep,
                server_settings={"application_name": "rxjobs"},
            )
        except (*_REFUSALS, OSError, ValueError, asyncpg.InterfaceError, TimeoutError) as error:
            raise _no_database(self.dsn, error) from error

    async def close(self) -> None:
        """Disconnect, at once where the server does not answer."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            await asyncio.wait_for(pool.close(), 2)
        except (TimeoutError, *_ANY):
            pool.terminate()

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """Run one statement in a transaction of its own."""
        assert self._pool is not None  # noqa: S101 - the app checks that it is open
        connection = await self._pool.acquire(timeout=CONNECT_TIMEOUT)
        try:
            rows: list[asyncpg.Record] = await connection.fetch(sql, *args)
            return rows
        finally:
            await self._pool.release(connection, timeout=2)

    async def connect(self) -> Connection:
        """A connection apart from the pool; raises NoDatabase where it never can be."""
        try:
            return await asyncpg.connect(
                self.dsn,
                timeout=CONNECT_TIMEOUT,
                command_timeout=STATEMENT_TIMEOUT,
                server_settings={"application_name": "rxjobs"},
            )
        except (*_REFUSALS, ValueError) as error:
            if passes(error):
                raise
            raise _no_database(self.dsn, error) from error


def masked(dsn: str) -> str:
    """The DSN without its password."""
    try:
        parts = urlsplit(dsn)
        if parts.password is None:
            return dsn
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{parts.username}:***@{host}"))
    except ValueError:
        return "(a DSN that cannot be read)"


_REFUSALS = (asyncpg.PostgresError, ssl.SSLError)
_ANY = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)


async def _keep(connection: asyncpg.Connection[Any]) -> None:
    """What the pool does to a connection it gets back: nothing, since ours keep no state; asyncpg's own costs a round trip."""


def _no_database(dsn: str, error: BaseException) -> NoDatabase:
    reason = str(error) or type(error).__name__
    return NoDatabase(f"no connection to {masked(dsn)}: {reason}. Is the server up, and is RXJOBS_DSN, --dsn or App(dsn) right?")
