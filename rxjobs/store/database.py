"""Connections to PostgreSQL: a pool for whoever asks, a few that outcomes are written on, and single ones for whoever stays."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Protocol

import asyncpg

from rxjobs.errors import NotOpen
from rxjobs.log_lines import logger
from rxjobs.store.advice import no_database, no_dsn
from rxjobs.store.connection import Connection as OurConnection
from rxjobs.store.connection import take_leave
from rxjobs.store.lines import Lines, no_connection
from rxjobs.store.patience import passes
from rxjobs.store.trust import ADVICE, advice_for, trust_in

log = logger("rxjobs.database")

CONNECT_TIMEOUT = 10.0
ACQUIRE_TIMEOUT = 5.0
STATEMENT_TIMEOUT = 5.0
LONG_TIMEOUT = 30.0
"""For statements that may read a whole table, or carry a thousand jobs."""
LOCK_TIMEOUT = 4.5
"""How long any of them waits for what somebody else has locked: less than the time of any, so that the server says what it was."""
POOL_SIZE, POOL = 8, "pool"
"""Connections for whoever asks now and then, or may take long."""
LINES = {"claims": 2, "inserts": 2, "reserved": 2}
"""Connections for what is asked thousands of times a second, and those reserved for what a node lives by: its outcomes and its
leadership. Whoever takes all of one kind takes none of the others."""
MAY_OVERFLOW = frozenset({"inserts"})
"""Where these lines are full, statements take what the pool has."""

PLANNED_ONCE = {"plan_cache_mode": "force_generic_plan"}
"""Else PostgreSQL chooses to plan each claim anew, which takes a fifth of its time."""
BRIEF_WAITS = {"lock_timeout": f"{LOCK_TIMEOUT:g}s"}

CLOSED = "the connections to the database are closed: the app that they belong to has ended"

Connection = Any
"""An asyncpg connection, or a pool's stand-in for one."""


class Line(Protocol):
    """A connection that is there for something else."""

    @property
    def is_connected(self) -> bool: ...

    @property
    def is_free(self) -> bool: ...

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]: ...


class Database:
    """A PostgreSQL database and the connections to it."""

    def __init__(self, dsn: str, *, pool_size: int = POOL_SIZE, acquire_timeout: float = ACQUIRE_TIMEOUT) -> None:
        self.dsn = dsn
        self._pool_size = pool_size
        self._acquire_timeout = acquire_timeout
        self._pool: asyncpg.Pool[Any] | None = None
        self._lines: dict[str, Lines] = {}
        self.is_behind_pooler = True
        """Whether something stands between that may give every transaction another session, as PgBouncer does: known once open."""
        self.timed: Callable[[str, float, float], object] | None = None
        """Who wants to know for how many seconds a connection of which pool was waited for, and then used."""
        self._waiting = self._timeouts = 0
        self.listener: Line | None = None
        """What listens, while something does: what is asked again and again is asked there, if it is free."""

    async def open(self) -> None:
        """Connect; raises NoDatabase where nothing answers, or not to us."""
        try:
            self.is_behind_pooler = await self._finds_pooler()
            self._pool = await self._make_pool(self._pool_size, keep_seconds=300.0)
            self._lines = {name: Lines(self.connect, size, self._acquire_timeout) for name, size in LINES.items()}
            for name, lines in self._lines.items():
                lines.timed = partial(self._tell, name)
            # there from the start: a server that is full later gives no new ones
            await self._lines["reserved"].open()
            self._tell_what_is_amiss()
        except (*_REFUSALS, OSError, asyncpg.InterfaceError, TimeoutError) as error:
            await self.close()
            raise no_database(self.dsn, error) from error

    async def close(self) -> None:
        """Disconnect, at once where the server does not answer."""
        pool, lines = self._pool, self._lines
        self._pool, self._lines = None, {}
        if pool is not None:
            await asyncio.gather(_close(pool), *(one.close() for one in lines.values()))

    async def fetch(
        self,
        sql: str,
        *args: Any,
        on: str | None = None,
        timeout: float = STATEMENT_TIMEOUT,  # noqa: ASYNC109 - asyncpg's
    ) -> list[asyncpg.Record]:
        """Run one statement in a transaction of its own, `on` lines that are kept for its kind, if they are.

        Raises TimeoutError, which says why, where no connection is to be had within `acquire_timeout`, or somebody else has locked
        what it needs.
        """
        if self._pool is None:
            raise NotOpen(CLOSED)
        try:
            if on is not None:
                if on == "listening":
                    if self.listener is not None and self.listener.is_free:
                        return await self.listener.fetch(sql, *args)
                    on = "reserved"
                lines = self._lines[on]
                if not (lines.is_full and on in MAY_OVERFLOW):
                    return await lines.fetch(sql, *args, timeout=timeout)
            return await self._fetch_by_pool(self._pool, sql, *args, timeout=timeout)
        except asyncpg.LockNotAvailableError as error:
            raise _locked() from error

    async def _fetch_by_pool(
        self,
        pool: asyncpg.Pool[Any],
        sql: str,
        *args: Any,
        timeout: float,  # noqa: ASYNC109 - asyncpg's
    ) -> list[asyncpg.Record]:
        began = time.monotonic()
        connection = await self._acquire(pool)
        got = time.monotonic()
        try:
            rows: list[asyncpg.Record] = await connection.fetch(sql, *args, timeout=timeout)
            return rows
        finally:
            await _give_back(pool, connection)
            self._tell(POOL, got - began, time.monotonic() - got)

    @property
    def pools(self) -> list[tuple[str, int, int, int, int, int]]:
        """Each pool by its name: connections idle, in use, and there at most; who waits for one; and who waited in vain."""
        pool, lines = self._pool, self._lines
        found = [(name, *one.numbers) for name, one in lines.items()]
        if pool is not None:
            idle, size = pool.get_idle_size(), pool.get_size()
            found.append((POOL, idle, max(0, size - idle), self._pool_size, self._waiting, self._timeouts))
        return found

    def _tell(self, pool: str, waited: float, used: float) -> None:
        if self.timed is not None:
            self.timed(pool, waited, used)

    def apart(self, dsn: str | None = None) -> Database:
        """The same database as this, maybe by another way, for somebody who connects by himself, maybe in another thread."""
        database = Database(dsn or self.dsn)
        # of another way nothing is known, so that nothing is kept in its sessions but who listens
        database.is_behind_pooler = self.is_behind_pooler or dsn is not None
        return database

    @property
    def _kept_prepared(self) -> int:
        # what is prepared in one session is not there in the next
        return 0 if self.is_behind_pooler else 100

    @property
    def _settings(self) -> dict[str, str]:
        return {"application_name": "rxjobs"} | ({} if self.is_behind_pooler else PLANNED_ONCE | BRIEF_WAITS)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection in a transaction; raises TimeoutError as `fetch` does."""
        pool = self._open_pool(self._pool)
        connection = await self._acquire(pool)
        try:
            async with connection.transaction():
                yield connection
        except asyncpg.LockNotAvailableError as error:
            raise _locked() from error
        finally:
            await _give_back(pool, connection)

    def _tell_what_is_amiss(self) -> None:
        trust = trust_in(self.dsn)
        if not trust.is_sure:
            log.warning("%s: %s", trust.doubt, ADVICE)

    async def _finds_pooler(self) -> bool:
        connection = await self.connect()
        try:
            # a pooler that shares sessions tells a client of no process of the server's
            return bool(connection.get_server_pid() != await connection.fetchval("SELECT pg_backend_pid()"))
        finally:
            await take_leave(connection)

    async def _make_pool(self, size: int, *, keep_seconds: float) -> asyncpg.Pool[Any]:
        return await asyncpg.create_pool(
            self.dsn,
            connection_class=OurConnection,
            min_size=0,  # for any other the pool itself would reconnect, and log each failure, through an outage
            max_size=size,
            max_inactive_connection_lifetime=keep_seconds,
            timeout=CONNECT_TIMEOUT,
            command_timeout=STATEMENT_TIMEOUT,
            reset=_keep,
            statement_cache_size=self._kept_prepared,
            server_settings=self._settings,
        )

    @staticmethod
    def _open_pool(pool: asyncpg.Pool[Any] | None) -> asyncpg.Pool[Any]:
        if pool is None:
            raise NotOpen(CLOSED)
        return pool

    async def _acquire(self, pool: asyncpg.Pool[Any]) -> Connection:
        self._waiting += 1
        try:
            return await pool.acquire(timeout=self._acquire_timeout)
        except TimeoutError:
            self._timeouts += 1
            size = pool.get_max_size()
            raise no_connection(self._acquire_timeout, size, are_all_there=pool.get_size() >= size) from None
        finally:
            self._waiting -= 1

    async def connect_now(self) -> Connection:
        """A connection apart from the pool; raises NoDatabase where there is none to be had now."""
        try:
            return await self.connect()
        except (*_ANY, TimeoutError) as error:
            raise no_database(self.dsn, error) from error

    async def connect(self) -> Connection:
        """A connection apart from the pool; raises NoDatabase where it never can be, and what may pass as it is."""
        try:
            return await asyncpg.connect(
                self.dsn,
                connection_class=OurConnection,
                timeout=CONNECT_TIMEOUT,
                command_timeout=STATEMENT_TIMEOUT,
                statement_cache_size=self._kept_prepared,
                server_settings=self._settings,
            )
        except _REFUSALS as error:
            if passes(error):
                raise
            raise no_database(self.dsn, error) from error
        except asyncpg.ClientConfigurationError as error:
            advice = advice_for(error)
            raise no_dsn(self.dsn, str(error) if advice is None else f"{error}. {advice}") from error
        except (ValueError, OverflowError):  # of a port that is no number, or too large a one; it may quote the password
            raise no_dsn(self.dsn) from None


def _locked() -> TimeoutError:
    return TimeoutError(f"somebody else has had locked what a statement needs for {LOCK_TIMEOUT:g} s: it did nothing")


async def _close(pool: asyncpg.Pool[Any]) -> None:
    try:
        await asyncio.wait_for(pool.close(), 2)
    except (TimeoutError, *_ANY):
        pool.terminate()


_REFUSALS = (asyncpg.PostgresError, ssl.SSLError)
_ANY = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)


async def _give_back(pool: asyncpg.Pool[Any], connection: Connection) -> None:
    """Return a connection. Where it takes long to rid it of a cancelled statement, asyncpg ends it; the caller need not know."""
    with suppress(TimeoutError):
        await pool.release(connection, timeout=2)


async def _keep(connection: asyncpg.Connection[Any]) -> None:
    """What the pool does to a connection it gets back: nothing, since ours keep no state; asyncpg's own costs a round trip."""
