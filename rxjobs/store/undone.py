"""Transactions that the server has undone for the sake of others: nothing of them was done, so that they can be done again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

T = TypeVar("T")

TIMES = 5
"""How often one is done again that waited for another in a circle, or was to be isolated from it."""
LONGEST = 0.1
"""Seconds until it is, at most the first time."""


async def unheard_at_worst(attempt: Callable[[], Awaitable[T]]) -> T:
    """What one transaction gives. One that is refused for its notifications is done again: it sees no room, and notifies nobody.

    The room was filled by others after it had looked whether there is any.
    """
    try:
        return await attempt()
    except asyncpg.ProgramLimitExceededError as error:
        if not is_for_notifications(error):
            raise
        return await attempt()


def is_for_notifications(error: asyncpg.ProgramLimitExceededError) -> bool:
    """Whether a transaction was refused for its notifications."""
    return "NOTIFY" in str(error)


async def until_done(attempt: Callable[[], Awaitable[T]]) -> T:
    """What one transaction gives, done again a few times where others were in its way."""
    for time in range(TIMES):
        try:
            return await unheard_at_worst(attempt)
        except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
            await asyncio.sleep(random.uniform(0, LONGEST) * 2**time)  # noqa: S311 - jitter
    return await unheard_at_worst(attempt)
