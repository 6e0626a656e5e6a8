"""Whether notifications come through, from one way to the server to another: a pooler in transaction mode swallows them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import uuid4

from rxjobs.errors import NoDatabase
from rxjobs.log_lines import logger
from rxjobs.store.advice import masked
from rxjobs.store.connection import take_leave
from rxjobs.store.database import Connection, Database
from rxjobs.store.patience import PASSING

log = logger("rxjobs.database")

HEARD_SECONDS = 5.0
MODE_SECONDS = 2.0
"""So long it may take to find out how a pooler shares its sessions; after that it is taken for one that does."""


async def can_listen(database: Database) -> bool:
    """Whether whoever listens on a way to the server hears something: also behind a pooler, if that is in session mode."""
    if not database.is_behind_pooler:
        return True
    try:
        async with asyncio.timeout(MODE_SECONDS), _connected(database) as one, _connected(database) as other:
            return await _keep_their_sessions(one, other) and await _hears(one, other.fetch) is not None
    except (NoDatabase, *PASSING):
        return False


async def listens_or_tells(database: Database) -> bool:
    """As `can_listen`; where not, it is logged what that means."""
    if not (can := await can_listen(database)):
        log.warning(
            "the database is reached through a pooler in transaction mode: no notification is heard, so that a job starts within "
            "about poll_seconds, and not at once, unless listen_dsn names the server itself"
        )
    return can


async def _keep_their_sessions(one: Connection, other: Connection) -> bool:
    """Whether it may be that no client is ever given another's session: asked first, since it leaves nothing behind in one."""
    mine = await one.fetchval("SELECT pg_backend_pid()")
    async with other.transaction():
        theirs = await other.fetchval("SELECT pg_backend_pid()")
        return bool(theirs != mine == await one.fetchval("SELECT pg_backend_pid()"))


async def hears(listening: Database, sending: Database) -> float | None:
    """Seconds until a notification, on a channel of its own, has arrived; None where it does not within HEARD_SECONDS.

    Raises NoDatabase where there is no connection to listen on.
    """
    async with _connected(listening) as listener:
        return await _hears(listener, sending.fetch)


@asynccontextmanager
async def _connected(database: Database) -> AsyncIterator[Connection]:
    connection = await database.connect_now()
    try:
        yield connection
    finally:
        await take_leave(connection)


async def _hears(listener: Connection, send: Callable[..., Awaitable[object]]) -> float | None:
    channel, arrived = f"rxjobs_doctor_{uuid4().hex}", asyncio.Event()
    try:
        await listener.add_listener(channel, lambda *_: arrived.set())
        began = time.monotonic()
        await send("SELECT pg_notify($1, '')", channel)
        await asyncio.wait_for(arrived.wait(), HEARD_SECONDS)
        return time.monotonic() - began
    except TimeoutError:
        return None


async def tell_if_deaf(listening: Database, sending: Database) -> None:
    """Have it logged where nothing is heard on a way that was named for just that."""
    try:
        heard = await hears(listening, sending)
    except (NoDatabase, *PASSING) as error:
        log.warning("whether notifications come through listen_dsn could not be tried: %s", error)
        return
    if heard is None:
        log.error(
            "no notification is heard on listen_dsn (%s), so that a job starts within about poll_seconds: it is to name the server "
            "itself, or a pooler in session mode, and the same database as dsn",
            masked(listening.dsn),
        )
