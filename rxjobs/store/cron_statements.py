"""The statements about entries of cron."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from rxjobs.store.asking import Asking, Rows
from rxjobs.store.database import Connection


class CronStatements(Asking):
    """Entries of cron, and their slots."""

    async def declare_crons(self, node: UUID, columns: Sequence[Sequence[str]]) -> None:
        """Have a node declare entries: names, expressions, time zones, what becomes of missed slots, jobs (JSON)."""
        await self._run("declare_crons", node, *columns, self._notify)

    async def read_crons(self) -> Rows:
        """The entries, and the server's time."""
        return await self._run("read_crons")

    async def take_slots(
        self,
        name: str,
        done_until: datetime,
        slots: Sequence[datetime],
        until: datetime,
        leader: UUID,
        term: int,
        connection: Connection,
    ) -> list[datetime]:
        """Take slots of an entry, and be done with all up to an instant; gives those that nobody had taken."""
        rows = await self._run("take_slots", name, done_until, slots, until, leader, term, connection=connection)
        return sorted(row["slot"] for row in rows)

    async def save_cron(self, name: str, expression: str, tz: str, missed: str, job: str) -> bool:
        """Enter or change an entry at run time; gives whether it is new."""
        (row,) = await self._run("save_cron", name, expression, tz, missed, job, self._notify)
        return bool(row["is_new"])

    async def pause_cron(self, name: str, *, pauses: bool) -> bool | None:
        """Let slots of an entry go by, or no more; gives whether that is new, None where there is no such entry."""
        rows = await self._run("pause_cron", name, pauses, self._notify)
        return bool(rows[0]["is_new"]) if rows else None

    async def remove_cron(self, name: str) -> bool | None:
        """Remove an entry; gives whether a living node declares it, None where there was none."""
        rows = await self._run("remove_cron", name)
        return bool(rows[0]["is_declared"]) if rows else None

    async def prune_slots(self, seconds: float, leader: UUID, term: int) -> None:
        """Forget slots, and entries that nobody declares any more, after so many seconds."""
        await self._run("prune_slots", seconds, leader, term)
