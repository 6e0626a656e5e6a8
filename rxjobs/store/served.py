"""Where a DSN leads to: a server that is there, or the embedded one, which is started for as long as it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

EMBEDDED = "embedded"


def is_embedded(dsn: str | None) -> bool:
    """Whether a DSN asks for the embedded server: none at all does."""
    return not dsn or dsn == EMBEDDED or dsn.startswith(f"{EMBEDDED}://")


@asynccontextmanager
async def served(dsn: str | None) -> AsyncIterator[str]:
    """The DSN of a server, which is started and stopped where it is the embedded one that is asked for; raises NoDatabase."""
    if dsn and not is_embedded(dsn):
        yield dsn
        return
    from rxjobs.store import embedded  # here, since it needs what only POSIX systems have

    folder = (dsn or "").removeprefix(EMBEDDED).removeprefix("://")
    server = await asyncio.to_thread(embedded.start, Path(folder) if folder else None)
    try:
        yield server.dsn
    finally:
        await asyncio.to_thread(server.stop)
