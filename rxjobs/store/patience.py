"""Which errors of a database pass by themselves, and how to wait for that."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from rxjobs.log_lines import logger

log = logger("rxjobs.database")

T = TypeVar("T")

PASSING = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.OperatorInterventionError,  # the server shuts down, or a statement was cut off
    asyncpg.InsufficientResourcesError,  # too many connections, disk full, out of memory
    asyncpg.TransactionRollbackError,  # deadlock, serialization
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby, until it is promoted
    asyncpg.InvalidCachedStatementError,  # the table was altered
    asyncpg.OutdatedSchemaCacheError,
)
FIRST_DELAY, LONGEST_DELAY = 0.1, 2.0
"""Seconds between tries: about the first, and at most the longest, which is also how late the end of an outage is noticed."""


def passes(error: BaseException) -> bool:
    """Whether the same statement may well succeed later."""
    return isinstance(error, PASSING)


async def patiently(what: str, attempt: Callable[[], Awaitable[T]], *, longest: float = LONGEST_DELAY) -> T:
    """Try until it succeeds, waiting longer and longer; raises only what does not pass by itself.

    One line is logged when it begins to fail, one when it works again, and few in between.
    """
    failures = 0
    while True:
        try:
            result = await attempt()
        except PASSING as error:
            failures += 1
            if failures & (failures - 1) == 0:  # the 1st, 2nd, 4th, 8th … try
                log.warning("%s failed %s, and is tried again: %s: %s", what, _times(failures), type(error).__name__, error)
            delay = min(longest, FIRST_DELAY * 2 ** min(failures - 1, 10))
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        else:
            if failures:
                log.warning("%s works again after %s", what, _times(failures))
            return result


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
