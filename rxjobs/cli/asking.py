"""Ask a database one thing from a command, which has no event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import asyncpg

from rxjobs.app import App
from rxjobs.errors import NoDatabase

T = TypeVar("T")


def ask(app: App, question: Callable[[], Awaitable[T]]) -> T:
    """Open the app, ask, close it; raises NoDatabase where the database does not do it."""

    async def opened() -> T:
        async with app:
            return await question()

    return answer(opened())


def answer(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; raises NoDatabase where the database does not do what it asks."""

    async def quietly() -> T:
        # what a connection leaves behind when Ctrl-C cuts it off is no news to the user
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        return await coroutine

    with refusals_told():
        return asyncio.run(quietly())


@contextmanager
def refusals_told() -> Iterator[None]:
    """Turn what a database says no with into an error for the user; raises NoDatabase."""
    try:
        yield
    except (OSError, asyncpg.InterfaceError) as error:
        raise NoDatabase(
            f"the database does not answer: {_told(error)}. Is the server up, and --dsn or RXJOBS_DSN right?"
        ) from error
    except asyncpg.PostgresError as error:
        raise NoDatabase(f"the database refuses: {_told(error)}. Are --dsn, --schema and its user's rights right?") from error


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__
