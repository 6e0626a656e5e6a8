"""Ask the database for a page: no page keeps it busy for long, and what it says no with is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

import asyncpg
from starlette.exceptions import HTTPException

from rxjobs.app import App
from rxjobs.errors import InvalidOption, RxJobsError, UnknownCron, UnknownJobType, UnknownQueue
from rxjobs.overview import Overview, look

T = TypeVar("T")

PAGE_SECONDS = 2.0
CHANGE_SECONDS = 30.0
"""A change may be of many jobs."""
FRESH_SECONDS = 1.0
COUNT_SECONDS = 1.0
"""Queues that take longer to be counted are left out of the overview."""


async def asked(question: Awaitable[T], seconds: float = PAGE_SECONDS) -> T:
    """The answer; raises HTTPException: 400 for a mistake, 503 where the database is slow, which it then stops, or away."""
    try:
        async with asyncio.timeout(seconds):
            return await question
    except (UnknownQueue, UnknownJobType, UnknownCron) as error:
        raise HTTPException(404, str(error)) from error
    except InvalidOption as error:
        raise HTTPException(400, str(error)) from error
    except TimeoutError as error:
        raise HTTPException(503, f"the database has not answered within {seconds:g} s: ask for less, or by a command") from error
    except (RxJobsError, OSError, asyncpg.InterfaceError, asyncpg.PostgresError) as error:
        raise HTTPException(503, f"the database does not do it: {str(error) or type(error).__name__}") from error


class Looker:
    """One look at everything for all who watch: however many pages are open, the database is asked once a second."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._seen: Overview | None = None
        self._at = float("-inf")
        self._lock = asyncio.Lock()

    async def look(self) -> Overview:
        """What there is, at most a second old."""
        async with self._lock:
            if self._seen is None or time.monotonic() > self._at + FRESH_SECONDS:
                self._seen = await look(self._app, is_watching=True, count_seconds=COUNT_SECONDS)
                self._at = time.monotonic()
            return self._seen
