"""Partition the history: what finishes from an instant on goes to tables of a day, a week or a month each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

import asyncpg

from rxjobs.errors import InvalidOption
from rxjobs.log_lines import logger
from rxjobs.store.migrate import BACK_OFF, ONE_AT_A_TIME, STEP_TIMEOUT
from rxjobs.store.statements import with_schema

log = logger("rxjobs.database")

T = TypeVar("T")

LOCK_TIMEOUT = "1s"
"""How long to wait for a lock at a time: jobs that end meanwhile wait behind the one who waits."""
SMALL = 64 * 1024 * 1024
"""Bytes of a history that are read while others wait."""

_SWITCH = "SELECT {schema}.partition_history($1, $2)"
_SIZE = "SELECT pg_relation_size('{schema}.finished_jobs'::regclass)"
_SOON = "SELECT date_trunc('day', now() AT TIME ZONE 'UTC' + interval '3 days') AT TIME ZONE 'UTC'"


async def partition_history(connection: asyncpg.Connection[Any], schema: str, by: str) -> datetime:
    """Partition the history by `by` from now on, if it is not yet, while jobs go on ending; gives since when it is.

    A history that is large is partitioned from the day on that begins two to three days from now: it is read before, so that
    nobody waits for that. Raises InvalidOption where something else depends on the table.
    """
    if (since := await _since(connection, schema, by)) is not None:
        return since
    await _without_check(connection, schema)
    if await connection.fetchval(with_schema(_SIZE, schema)) > SMALL:
        since = await connection.fetchval(_SOON)
    try:
        if since is not None:
            await _checked(connection, schema, since)

        async def switch() -> Any:
            await connection.execute(ONE_AT_A_TIME, schema)
            return await connection.fetchval(with_schema(_SWITCH, schema), by, since, timeout=STEP_TIMEOUT)

        found: datetime = await _patiently(connection, switch)
    except BaseException as error:
        # no job could end any more once that instant comes; where this is not done either, the leader does it
        with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            await _without_check(connection, schema)
        if isinstance(error, asyncpg.DependentObjectsStillExistError):
            raise InvalidOption(
                f"the history of schema {schema!r} cannot be partitioned: {error}; drop it, and make it anew afterwards"
            ) from error
        raise
    return found


async def _since(connection: asyncpg.Connection[Any], schema: str, by: str) -> datetime | None:
    """Since when it is partitioned; the periods that come are by `by` then."""
    change = with_schema("UPDATE {schema}.history SET every = $1 RETURNING since", schema)
    found: datetime | None = await connection.fetchval(change, by)
    return found


async def _checked(connection: asyncpg.Connection[Any], schema: str, since: datetime) -> None:
    """Have PostgreSQL know that all rows are of before an instant that is yet to come."""
    check = f"CHECK (finished_at < '{since.isoformat()}') NOT VALID"
    add = with_schema(f"ALTER TABLE {{schema}}.finished_jobs ADD CONSTRAINT finished_jobs_until {check}", schema)
    await _patiently(connection, lambda: connection.execute(add))
    validate = with_schema("ALTER TABLE {schema}.finished_jobs VALIDATE CONSTRAINT finished_jobs_until", schema)
    await _patiently(connection, lambda: connection.execute(validate, timeout=STEP_TIMEOUT))


async def _without_check(connection: asyncpg.Connection[Any], schema: str) -> None:
    there = "SELECT FROM pg_constraint WHERE conname = 'finished_jobs_until' AND conrelid = '{schema}.finished_jobs'::regclass"
    if await connection.fetch(with_schema(there, schema)):
        drop = with_schema("ALTER TABLE {schema}.finished_jobs DROP CONSTRAINT IF EXISTS finished_jobs_until", schema)
        await _patiently(connection, lambda: connection.execute(drop))


async def _patiently(connection: asyncpg.Connection[Any], attempt: Callable[[], Awaitable[T]]) -> T:
    """Do it in a transaction that waits for no lock for long, at one of a few tries; raises what the last one does."""

    async def once() -> T:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
            return await attempt()

    for delay in BACK_OFF:
        try:
            return await once()
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
            log.warning("the history could not be partitioned, and that is tried again: %s", error)
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
    return await once()
