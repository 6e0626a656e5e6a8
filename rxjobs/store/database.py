"""Connections to PostgreSQL: one pool for statements, and one of its own for whoever has to stay connected."""

from __future__ import annotations

import asyncio
import re
import ssl
from typing import Any

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
            pool = await asyncpg.create_pool(
                self.dsn,
                min_size=0,  # for any other the pool itself would reconnect, and log each failure, through an outage
                max_size=POOL_SIZE,
                timeout=CONNECT_TIMEOUT,
                command_timeout=STATEMENT_TIMEOUT,
                reset=_keep,
                server_settings={"application_name": "rxjobs"},
            )
            async with pool.acquire(timeout=CONNECT_TIMEOUT):
                self._pool = pool
        except (*_REFUSALS, OSError, asyncpg.InterfaceError, TimeoutError) as error:
            raise _no_database(self.dsn, error) from error
        except ValueError:
            raise _no_dsn(self.dsn) from None

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

    async def connect_now(self) -> Connection:
        """A connection apart from the pool; raises NoDatabase where there is none to be had now."""
        try:
            return await self.connect()
        except (*_ANY, TimeoutError) as error:
            raise _no_database(self.dsn, error) from error

    async def connect(self) -> Connection:
        """A connection apart from the pool; raises NoDatabase where it never can be, and what may pass as it is."""
        try:
            return await asyncpg.connect(
                self.dsn,
                timeout=CONNECT_TIMEOUT,
                command_timeout=STATEMENT_TIMEOUT,
                server_settings={"application_name": "rxjobs"},
            )
        except (*_REFUSALS, asyncpg.ClientConfigurationError) as error:
            if passes(error) and not isinstance(error, ValueError):
                raise
            raise _no_database(self.dsn, error) from error
        except ValueError:
            raise _no_dsn(self.dsn) from None


def masked(dsn: str) -> str:
    """The DSN without its passwords, also where it is no well-formed one: rather too little is shown than too much."""
    return _PASSWORD_OPTION.sub(r"\1***", _PASSWORD_OF_USER.sub(r"\1***@", dsn))


_PASSWORD_OF_USER = re.compile(r"(://[^:@/?#]*:).*@", re.DOTALL)
_PASSWORD_OPTION = re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'?|[^&\s]*)", re.IGNORECASE)


_REFUSALS = (asyncpg.PostgresError, ssl.SSLError)
_ANY = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)


async def _keep(connection: asyncpg.Connection[Any]) -> None:
    """What the pool does to a connection it gets back: nothing, since ours keep no state; asyncpg's own costs a round trip."""


def _no_database(dsn: str, error: BaseException) -> NoDatabase:
    reason = str(error) or type(error).__name__
    return NoDatabase(f"no connection to {masked(dsn)}: {reason}. Is the server up, and is RXJOBS_DSN, --dsn or App(dsn) right?")


def _no_dsn(dsn: str) -> NoDatabase:
    # what could not be read may be a part of the password, so that the parser's own words are not passed on
    return NoDatabase(
        f"{masked(dsn)} is no DSN of PostgreSQL: it is postgresql://user:password@host:5432/database, with %40 and the like for "
        "special characters in a password. Is RXJOBS_DSN, --dsn or App(dsn) right?"
    )
