"""The statements about what becomes of jobs: results, progress, and the wish to cancel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from rxjobs.store.asking import Asking, Rows, ids_of
from rxjobs.store.database import Connection
from rxjobs.store.statements import statement


class Claim(NamedTuple):
    """By whom a job is claimed, and for which attempt."""

    id: int
    node: UUID | None
    attempt: int
    attempted_at: datetime | None


async def complete_job(schema: str, connection: Connection, claim: Claim, result: str | None) -> bool:
    """Write down that a job was completed, over a connection that was joined; gives whether its claim is the current one."""
    return bool(await connection.fetch(statement("complete_job", schema), *claim, result))


class ResultStatements(Asking):
    """Complete, cancel and follow jobs, and find their results."""

    ends_awaited: dict[int, Callable[[], object]]
    """What is to be called once this process has written down how a job ended, by its id."""

    async def complete_job(self, claim: Claim, result: str | None, connection: Connection) -> bool:
        """Write down that a job was completed; gives whether its claim is the current one."""
        return await complete_job(self.schema, connection, claim, result)

    async def cancel_jobs(self, ids: Sequence[int]) -> set[int]:
        """Cancel jobs that wait, and have those stopped that are executing; gives the ids of both."""
        found, left = set[int](), list(ids)
        while left:
            rows, left = await self._some("cancel_jobs", left, self._notify)
            self._tell_ends({row["id"] for row in rows if not row["is_executing"]})
            found |= ids_of(rows)
        return found

    async def ended_jobs(self, ids: Sequence[int]) -> Rows:
        """Those jobs that have ended, with their results, and those that are not there."""
        return await self._run("ended_jobs", ids)

    async def save_progress(
        self,
        node: UUID,
        ids: Sequence[int],
        attempts: Sequence[int],
        attempted_at: Sequence[datetime | None],
        progress: Sequence[str],
    ) -> tuple[set[int], set[int]]:
        """Write down how far jobs have come, where the node still has these claims; gives those ids, and those that are left."""
        rows, left = await self._some("save_progress", node, ids, attempts, attempted_at, progress)
        return ids_of(rows), set(left)

    async def read_progress(self, id_: int) -> tuple[str | None, bool]:
        """How far a job says that it has come (JSON), and whether it has ended or is not there."""
        rows = await self._run("read_progress", id_)
        return (rows[0]["progress"], rows[0]["has_ended"]) if rows else (None, True)

    def _tell_ends(self, ids: set[int]) -> None:
        for id_ in ids & self.ends_awaited.keys():
            self.ends_awaited[id_]()
