"""What is asked of the schema: one method a statement, named after its file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg

from rxjobs.definition import NewJob
from rxjobs.store.database import Connection, Database
from rxjobs.store.encoding import Filters, NewRows, Written
from rxjobs.store.statements import statement

Rows = list[asyncpg.Record]

Marks = tuple[tuple[datetime, ...], tuple[int, ...]]
"""A place in the order of each priority's jobs: the instants they are scheduled at, and the ids."""

PRIORITIES = 10
FROM_THE_START: Marks = (datetime.min.replace(tzinfo=UTC),) * PRIORITIES, (0,) * PRIORITIES


class Store:
    """The statements of one schema. Every method is one round trip and one transaction, unless it is given a connection."""

    def __init__(self, database: Database, schema: str, *, notify: bool = True, max_args_bytes: int = 1024 * 1024) -> None:
        self.database = database
        self.schema = schema
        self.channel = schema
        self._notify = schema if notify else None
        self.max_stored_bytes = 2 * max_args_bytes + 65536
        """What a claim reads of a row's arguments at most: room for what encryption and other programs' spaces add."""
        self._claiming: set[object] = set()

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """While inside, a claim may have been made whose jobs nobody holds yet."""
        claim = object()
        self._claiming.add(claim)
        try:
            yield
        finally:
            self._claiming.discard(claim)

    @property
    def claims(self) -> frozenset[object]:
        """The claims on their way."""
        return frozenset(self._claiming)

    async def insert_jobs(self, jobs: Sequence[NewJob], connection: Connection | None = None) -> Rows:
        """Insert jobs; gives their ids and states, in order."""
        return await self._run("insert_jobs", *NewRows.of(jobs).columns(), self._notify, connection=connection)

    async def fetch_jobs(self, queue: str, n: int, types: Sequence[str], node: UUID, marks: Marks = FROM_THE_START) -> Rows:
        """Claim up to n jobs, of each priority those from its mark on."""
        return await self._run("fetch_jobs", queue, n, types, node, self.max_stored_bytes, *marks)

    async def fetch_jobs_where(
        self,
        queue: str,
        n: int,
        types: Sequence[str],
        node: UUID,
        tags: Sequence[str],
        args: str,
        marks: Marks = FROM_THE_START,
    ) -> Rows:
        """Claim up to n jobs that have the tags and contain the arguments (JSON)."""
        return await self._run("fetch_jobs_where", queue, n, types, node, tags, args, self.max_stored_bytes, *marks)

    async def ready_behind(
        self, queue: str, types: Sequence[str], tags: Sequence[str], args: str, marks: Marks
    ) -> tuple[bool, float]:
        """Whether such a job is ready before the mark of its priority, and the seconds that it took to find out."""
        (row,) = await self._run("ready_behind", queue, types, tags, args, *marks)
        return row["is_ready"], row["seconds"]

    async def has_waited(self, queue: str, types: Sequence[str], tags: Sequence[str], args: str, seconds: float) -> bool:
        """Whether such a job has been ready for longer than so many seconds."""
        (row,) = await self._run("has_waited", queue, types, tags, args, seconds)
        return bool(row["has_waited"])

    async def ack_completed(self, ids: Sequence[int], node: UUID, attempt: int) -> set[int]:
        """Write down that jobs of one attempt number were completed; gives the ids that were."""
        return _ids(await self._run("ack_completed", ids, node, attempt))

    async def ack_jobs(self, node: UUID, written: Written) -> set[int]:
        """Write down how jobs ended; gives the ids that were."""
        return _ids(await self._run("ack_jobs", node, *written.columns(), self._notify))

    async def find_acked(self, node: UUID, ids: Sequence[int], attempts: Sequence[int]) -> set[int]:
        """Which of these were written down already by this node."""
        return _ids(await self._run("find_acked", node, ids, attempts))

    async def stage_jobs(self, limit: int, leader: UUID, term: int) -> tuple[int, float | None]:
        """Make jobs available whose time has come; gives how many, and the seconds until the next."""
        (row,) = await self._run("stage_jobs", limit, self._notify, leader, term)
        return row["staged"], row["next"]

    async def take_lease(self, node: UUID, label: str, pid: int, seconds: float) -> None:
        """Enter a node."""
        await self._run("take_lease", node, label, pid, seconds)

    async def renew_lease(self, node: UUID, seconds: float) -> bool:
        """Keep a node alive; False where its lease was taken away."""
        return bool(await self._run("renew_lease", node, seconds))

    async def lead(self, node: UUID, seconds: float) -> int | None:
        """Lead for so many seconds; gives the term, or None where another leads."""
        rows = await self._run("lead", node, seconds)
        return rows[0]["term"] if rows else None

    async def resign(self, node: UUID) -> None:
        """Stop leading."""
        await self._run("resign", node)

    async def leave(self, node: UUID) -> None:
        """Give up a node's lease."""
        await self._run("leave", node)

    async def expired_nodes(self, lease_seconds: float) -> list[tuple[UUID, str]]:
        """The nodes whose lease ran out: id and label."""
        return [(row["id"], row["label"]) for row in await self._run("expired_nodes", lease_seconds)]

    async def orphans(self, leader: UUID, term: int) -> set[UUID]:
        """Enter as dead the nodes that jobs are claimed by and that are not known; gives their ids."""
        return {row["id"] for row in await self._run("orphans", leader, term)}

    async def bury(self, node: UUID) -> None:
        """Remove a dead node."""
        await self._run("bury", node)

    async def rescue_jobs(self, node: UUID, limit: int, leader: UUID, term: int) -> set[int]:
        """Take jobs from a dead node."""
        return _ids(await self._run("rescue_jobs", node, limit, self._notify, leader, term))

    async def lost_claims(self, node: UUID, held: Iterable[int], before: datetime | None) -> tuple[set[int], datetime]:
        """Give back what a node has claimed without knowing it; gives the ids, and PostgreSQL's time."""
        (row,) = await self._run("lost_claims", node, list(held), before, self._notify)
        return set(row["ids"]), row["now"]

    async def prune_jobs(self, keep: float, limit: int, leader: UUID, term: int) -> int:
        """Delete finished jobs older than `keep` seconds; gives how many."""
        (row,) = await self._run("prune_jobs", keep, limit, leader, term)
        count: int = row["count"]
        return count

    async def queue_depths(self) -> Rows:
        """How many unfinished jobs stand in each queue and state."""
        return await self._run("queue_depths")

    async def oldest_transactions(self) -> Rows:
        """What keeps vacuum from removing dead rows, the oldest first."""
        return await self._run("oldest_transactions")

    async def get_jobs(self, ids: Sequence[int]) -> Rows:
        """Jobs by id."""
        return await self._run("get_jobs", ids)

    async def list_jobs(self, filters: Filters, after: int | None, limit: int) -> Rows:
        """Jobs, the newest first, older than the one with the id `after`."""
        return await self._run("list_jobs", *filters.columns(), after, limit)

    async def find_jobs(self, filters: Filters, above: int, limit: int) -> list[int]:
        """The ids of jobs above an id, in order."""
        return [row["id"] for row in await self._run("find_jobs", *filters.columns(), above, limit)]

    async def count_jobs(self, filters: Filters) -> dict[str, int]:
        """How many jobs there are by state."""
        return {row["state"]: row["jobs"] for row in await self._run("count_jobs", *filters.columns())}

    async def cancel_jobs(self, ids: Sequence[int]) -> set[int]:
        """Cancel jobs that wait."""
        return _ids(await self._run("cancel_jobs", ids))

    async def retry_jobs(self, ids: Sequence[int], attempts: int) -> set[int]:
        """Make jobs available at once."""
        return _ids(await self._run("retry_jobs", ids, attempts, self._notify))

    async def delete_jobs(self, ids: Sequence[int]) -> set[int]:
        """Delete jobs that are not executing."""
        return _ids(await self._run("delete_jobs", ids))

    async def _run(self, name: str, *args: Any, connection: Connection | None = None) -> Rows:
        sql = statement(name, self.schema)
        return await (self.database.fetch(sql, *args) if connection is None else connection.fetch(sql, *args))


def _ids(rows: Rows) -> set[int]:
    return {row["id"] for row in rows}
