"""Faults of a server that is away for a while, or takes nothing."""

from __future__ import annotations

import asyncio
from random import Random

import asyncpg

from tests.chaos.ground import LEASE, Ground
from tests.servers import no_room_for_notifications

AWAY = 2 * LEASE + 1.0
"""Seconds: longer than any lease."""


lasts = asyncio.sleep
"""How long a fault itself goes on, or at what moment of it: what comes of it is waited for as a fact, never by the clock."""


async def stopped(ground: Ground, random: Random, *, seconds: float = AWAY) -> None:
    """F5: there is no server."""
    await ground.server.stop()
    await lasts(seconds)
    await ground.server.start()


async def read_only(ground: Ground, random: Random, *, seconds: float = AWAY) -> None:
    """F6: every session may only read, from its next statement on."""
    name = await ground.value("SELECT current_database()")
    await ground.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await ground.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    await ground.execute("SELECT pg_reload_conf()")
    await lasts(seconds)
    connection = await asyncpg.connect(ground.server.dsn)
    try:
        for statement in (
            "SET default_transaction_read_only = off",
            "ALTER SYSTEM RESET default_transaction_read_only",
            f"ALTER DATABASE {name} RESET default_transaction_read_only",
            "SELECT pg_reload_conf()",
        ):
            await connection.execute(statement)
    finally:
        await connection.close()


async def standing_by(ground: Ground, random: Random, *, seconds: float = AWAY) -> None:
    """F6: the server comes back as a standby, and is promoted later."""
    await ground.server.stand_by()
    await lasts(seconds)
    await ground.server.promote()


async def unreachable(ground: Ground, random: Random, *, seconds: float = AWAY) -> None:
    """All links are cut, and none can be made."""
    for worker in ground.alive:
        worker.link.refuse()
    await lasts(seconds)
    for worker in ground.alive:
        worker.link.heal()


async def notifications_full(ground: Ground, random: Random, *, seconds: float = 3.0) -> None:
    """F41: nobody can notify."""
    async with no_room_for_notifications(ground.dsn):
        await lasts(seconds)


FAULTS = (stopped, read_only, standing_by, unreachable, notifications_full)
