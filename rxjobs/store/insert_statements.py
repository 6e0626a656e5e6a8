"""The statements that insert jobs, and tell of it."""

from __future__ import annotations

from collections.abc import Sequence

from rxjobs.definition import NewJob
from rxjobs.enqueued import Enqueued
from rxjobs.store.asking import Asking
from rxjobs.store.database import Connection
from rxjobs.store.encoding import NewRows, alike_columns, are_alike, one_columns


class InsertStatements(Asking):
    """Insert jobs, and wake their queues."""

    async def insert_jobs(
        self, jobs: Sequence[NewJob], connection: Connection | None = None, *, notify: bool = True
    ) -> list[Enqueued]:
        """Insert jobs, and wake their queues with it if `notify`; gives their rows, in order."""
        channel = self._notify if notify else None
        if len(jobs) == 1 and not jobs[0].delay and jobs[0].scheduled_at is None:
            return [await self.insert_one(jobs[0], channel, connection)]
        if jobs and are_alike(jobs):
            return await self.insert_alike(jobs, channel, connection)
        rows = await self._run("insert_jobs", *NewRows.of(jobs).columns(), channel, connection=connection)
        return [Enqueued(*row) for row in rows]

    async def insert_one(self, job: NewJob, channel: str | None, connection: Connection | None = None) -> Enqueued:
        """Insert a job that may run at once, whatever its delay says, and wake its queue on the channel; gives its row."""
        (row,) = await self._run("insert_one", *one_columns(job), channel, connection=connection)
        return Enqueued(row["id"], "available")

    async def insert_alike(
        self, jobs: Sequence[NewJob], channel: str | None, connection: Connection | None = None
    ) -> list[Enqueued]:
        """Insert jobs that are alike but for their arguments, and wake their queue on the channel; gives their rows, in order."""
        (row,) = await self._run("insert_alike", *alike_columns(jobs), channel, connection=connection)
        state = row["state"]
        return [Enqueued(id, state) for id in row["ids"]]

    async def notify_queues(self, queues: Sequence[str]) -> None:
        """Wake queues."""
        if self._notify is not None:
            await self._run("notify_queues", self._notify, queues)
