"""The statements about unique jobs."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from rxjobs.definition import NewJob
from rxjobs.store.asking import Asking, Rows, ids_of
from rxjobs.store.database import Connection
from rxjobs.store.encoding import NewRows, replacing_columns, unique_columns
from rxjobs.store.undone import until_done


class UniqueStatements(Asking):
    """Insert unique jobs, and find their twins."""

    async def insert_unique(self, jobs: Sequence[NewJob], connection: Connection, *, notify: bool = True) -> Rows:
        """Insert those jobs whose unique key nobody stands for; gives their ids and states, and their places from 1."""
        columns = NewRows.of(jobs).columns()
        return await self._run(
            "insert_unique", *columns, self._notify if notify else None, *unique_columns(jobs), connection=connection
        )

    async def find_twins(
        self, keys: Sequence[str], periods: Sequence[float | None], own: Sequence[int], connection: Connection
    ) -> Rows:
        """Who stands for unique keys, other than these jobs: place from 1, id, state."""
        return await self._run("find_twins", keys, periods, own, connection=connection)

    async def replace_job(self, id_: int, job: NewJob, connection: Connection) -> str | None:
        """Write what a new job has over what one that waits has, as far as that is to be replaced; gives its state."""
        rows = await self._run("replace_job", id_, *replacing_columns(job), self._notify, connection=connection)
        return rows[0]["state"] if rows else None

    async def twins_of(self, ids: Sequence[int] | None) -> dict[int, int]:
        """Which of these jobs, or of those to be staged, have a twin that stands for their unique key, and who that is."""
        return {row["id"]: row["twin"] for row in await self._run("twins_of", ids)}

    async def cancel_twins(self, ids: Sequence[int], dead_node: UUID | None, twins: Sequence[int]) -> set[int]:
        """Cancel jobs that cannot go on since their twins stand for their unique keys."""
        return ids_of(await until_done(lambda: self._run("cancel_twins", ids, dead_node, twins)))
