"""Statements that notify, where the room for notifications was filled by others after they had looked whether there is any."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

T = TypeVar("T")


async def unheard_at_worst(attempt: Callable[[], Awaitable[T]]) -> T:
    """What one transaction gives. One that is refused for its notifications is done again: it sees no room, and notifies nobody."""
    try:
        return await attempt()
    except asyncpg.ProgramLimitExceededError as error:
        if "NOTIFY" not in str(error):
            raise
        return await attempt()
