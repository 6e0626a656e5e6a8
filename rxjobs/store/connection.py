"""Our connections to PostgreSQL: what a node asks on them by itself begins no traces."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import asyncpg

from rxjobs.telemetry.quiet import asked

CLOSE_SECONDS = 2.0
"""How long the end of a session is waited for."""

if TYPE_CHECKING:
    Theirs = asyncpg.Connection[Any]  # which can be written of its stubs alone
else:
    Theirs = asyncpg.Connection


class Connection(Theirs):
    """A connection whose statements are in the trace that they belong to, and in none where they belong to none."""

    # what asks goes through one of these, also BEGIN, COMMIT and LISTEN; instrumentations wrap those of the base class

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """As asyncpg's."""
        return asked(super().execute, args, kwargs)

    def executemany(self, *args: Any, **kwargs: Any) -> Any:
        """As asyncpg's."""
        return asked(super().executemany, args, kwargs)

    def fetch(self, *args: Any, **kwargs: Any) -> Any:
        """As asyncpg's."""
        return asked(super().fetch, args, kwargs)

    def fetchrow(self, *args: Any, **kwargs: Any) -> Any:
        """As asyncpg's."""
        return asked(super().fetchrow, args, kwargs)

    def fetchval(self, *args: Any, **kwargs: Any) -> Any:
        """As asyncpg's."""
        return asked(super().fetchval, args, kwargs)


async def take_leave(connection: Any) -> None:
    """Disconnect. A server that is slow to end the session has answered all that it was asked: that is no error."""
    with suppress(TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        await connection.close(timeout=CLOSE_SECONDS)
