"""Whether notifications come through, from one way to the server to another: a pooler in transaction mode swallows them."""

from __future__ import annotations

import asyncio
import logging
import time
from uuid import uuid4

from rxjobs.errors import NoDatabase
from rxjobs.store.advice import masked
from rxjobs.store.database import Database
from rxjobs.store.patience import PASSING

log = logging.getLogger("rxjobs.database")

HEARD_SECONDS = 5.0


async def hears(listening: Database, sending: Database) -> float | None:
    """Seconds until a notification, on a channel of its own, has arrived; None where it does not within HEARD_SECONDS.

    Raises NoDatabase where there is no connection to listen on.
    """
    listener = await listening.connect_now()
    channel, arrived = f"rxjobs_doctor_{uuid4().hex}", asyncio.Event()
    try:
        await listener.add_listener(channel, lambda *_: arrived.set())
        began = time.monotonic()
        await sending.fetch("SELECT pg_notify($1, '')", channel)
        await asyncio.wait_for(arrived.wait(), HEARD_SECONDS)
        return time.monotonic() - began
    except TimeoutError:
        return None
    finally:
        await listener.close(timeout=2)


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
