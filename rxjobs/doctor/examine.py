"""Look at all there is to look at, one check after another; what a check cannot find out is a finding too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import asyncpg

from rxjobs.doctor import server, vacuum, work
from rxjobs.doctor.breakers import breakers
from rxjobs.doctor.finding import Finding, Health, ok, problem, warning
from rxjobs.doctor.history import history
from rxjobs.errors import InvalidDSN, NoDatabase, NotMigrated, SchemaTooNew
from rxjobs.settings import Settings
from rxjobs.store import migrate as migrations
from rxjobs.store.database import Database
from rxjobs.store.served import is_embedded, served
from rxjobs.store.store import Store

POOL_SIZE = 1
"""Whoever looks at a server that is full takes as little as can be."""

Check = Callable[[Store, Settings], Awaitable[Iterable[Finding]]]

OF_THE_SERVER: dict[str, Check] = {"server": server.examine, "notifications": server.listens}
OF_THE_SCHEMA: dict[str, Check] = {
    "nodes": work.nodes,
    "queues": work.paused,
    "breakers": breakers,
    "unserved": work.unserved,
    "progress": work.progress,
    "horizon": vacuum.horizon,
    "dead rows": vacuum.dead_rows,
    "history": history,
}


async def examine(settings: Settings) -> list[Finding]:
    """Everything that is found; a server that does not answer is the only finding. Raises InvalidDSN."""
    try:
        async with served(settings.dsn) as dsn:
            database = Database(dsn, pool_size=POOL_SIZE)
            await database.open()
            try:
                return await _examine(Store(database, settings.schema, notify=settings.notify), settings)
            finally:
                await database.close()
    except InvalidDSN:
        raise  # a mistake in the call
    except NoDatabase as error:
        return [problem("server", str(error), "start the server, or name the right one with --dsn or RXJOBS_DSN")]


async def _examine(store: Store, settings: Settings) -> list[Finding]:
    findings = await _all(OF_THE_SERVER, store, settings)
    findings += [_shown(settings), *await _checked("schema", _schema, store, settings)]
    if findings[-1].state is Health.OK:
        findings += await _all(OF_THE_SCHEMA, store, settings)
    return findings


async def _all(checks: dict[str, Check], store: Store, settings: Settings) -> list[Finding]:
    return [finding for name, check in checks.items() for finding in await _checked(name, check, store, settings)]


async def _checked(name: str, check: Check, store: Store, settings: Settings) -> list[Finding]:
    try:
        return list(await check(store, settings))
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError, NoDatabase) as error:
        told = str(error) or type(error).__name__
        return [problem(name, f"could not be looked at: {told}", "see the server's log, and the rights of the user in the DSN")]


async def _schema(store: Store, settings: Settings) -> list[Finding]:
    try:
        async with store.database.transaction() as connection:
            await migrations.check(connection, store.schema)
    except NotMigrated as error:
        found, _, advice = str(error).partition(": ")
        if settings.migrate or is_embedded(settings.dsn):
            return [warning("schema", found, "nothing: it is brought up to date when an app opens")]
        return [problem("schema", found, advice)]
    except SchemaTooNew as error:
        found, _, advice = str(error).partition(": ")
        return [problem("schema", found, advice)]
    return [ok("schema", f"schema {store.schema!r} is there, and migrated")]


def _shown(settings: Settings) -> Finding:
    """The settings in force. Those that do not fit together were refused before."""
    names = (
        "node",
        "lease_seconds",
        "heartbeat_seconds",
        "rescue_seconds",
        "leader_seconds",
        "poll_seconds",
        "ageing_seconds",
        "shutdown_grace",
        "keep",
    )
    values = ", ".join(f"{name} {getattr(settings, name)}" for name in names if getattr(settings, name) not in ("", None))
    found = f"{values}, notify {'on' if settings.notify else 'off'}"
    if not settings.notify:
        return warning("settings", found, "turn notify on, unless the poll is soon enough: jobs are found by nothing else")
    return ok("settings", found)
