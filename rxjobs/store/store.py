"""What is asked of the schema: one method a statement, named after its file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from rxjobs.definition import Options
from rxjobs.source import Control
from rxjobs.store.asking import Rows, ids_of
from rxjobs.store.breaker_statements import STANDINGS, BreakerStatements
from rxjobs.store.cron_statements import CronStatements
from rxjobs.store.database import Connection, Database
from rxjobs.store.dead_statements import DeadStatements
from rxjobs.store.encoding import Filters, Written, to_json, type_columns
from rxjobs.store.insert_statements import InsertStatements
from rxjobs.store.limit_statements import LimitStatements
from rxjobs.store.node_statements import NodeStatements
from rxjobs.store.result_statements import ResultStatements
from rxjobs.store.standing import Standing
from rxjobs.store.undone import until_done
from rxjobs.store.unique_statements import UniqueStatements

__all__ = ["FROM_THE_START", "LONG_AGO", "Look", "Marks", "Rows", "Staged", "Store"]

Marks = tuple[tuple[datetime, ...], tuple[int, ...]]
"""A place in the order of each priority's jobs: the instants they are scheduled at, and the ids."""

PRIORITIES = 10
READ_AT_ONCE = 20_000
"""Of so many jobs those are looked for in one statement that filters are about: a tenth of a second."""
LONG_AGO = datetime.min.replace(tzinfo=UTC)
FROM_THE_START: Marks = (LONG_AGO,) * PRIORITIES, (0,) * PRIORITIES


class Staged(NamedTuple):
    """What a look for jobs that are due has found, and made available."""

    jobs: int
    next: float | None
    """Seconds until the next is due; None when none waits."""
    until: datetime
    """Up to here nothing that is due is left, as far as it was to be seen."""
    seconds: float
    """What it took to find them."""
    retried: int = 0
    """How many of them had failed before; the others were scheduled."""


class Look(NamedTuple):
    """What a node has seen that asked what there is to do."""

    ready: frozenset[int]
    """The places of the sources for which a job is ready, unless it is narrowed to others."""
    asked: Mapping[str, Control]
    """What is asked of queues; those that nothing is asked of are left out."""
    next: float | None
    """Seconds until the first of the jobs that wait is due; below 0 where one has been, None where none waits."""
    at: datetime
    seconds: float
    """What it took to find that one."""
    is_a_node_gone: bool
    cancelling: frozenset[tuple[int, int]] = frozenset()
    """The jobs that the node executes and is to cancel: their ids, and the attempts."""
    limited: Mapping[str, float] = {}
    """The queues with limits across all nodes: seconds after which to ask again for what a claim was not given."""
    breakers: Sequence[Standing] = ()
    limited_at: Mapping[str, datetime] = {}
    """When the limits of those queues were changed last, or something else that is asked of them was."""


class Store(
    InsertStatements, UniqueStatements, CronStatements, ResultStatements, BreakerStatements, LimitStatements, NodeStatements,
    DeadStatements,
):  # fmt: skip
    """The statements of one schema. Every method is one round trip and one transaction, unless it is given a connection."""

    def __init__(self, database: Database, schema: str, *, notify: bool = True, max_args_bytes: int = 1024 * 1024) -> None:
        self.database = database
        self.schema = schema
        self.channel = schema
        self._notify = schema if notify else None
        self.max_stored_bytes = 2 * max_args_bytes + 65536
        """What a claim reads of a row's arguments at most: room for what encryption and other programs' spaces add."""
        self._claiming: set[object] = set()
        self.ends_awaited = {}
        self.lost_answers = 0
        """How many claims may have been made whose jobs nobody will ever hold, since their answers were lost."""

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """While inside, a claim may have been made whose jobs nobody holds yet."""
        claim = object()
        self._claiming.add(claim)
        try:
            with self._answered():
                yield
        finally:
            self._claiming.discard(claim)

    @property
    def claims(self) -> frozenset[object]:
        """The claims on their way."""
        return frozenset(self._claiming)

    async def fetch_jobs(self, queue: str, n: int, types: Sequence[str], node: UUID, marks: Marks = FROM_THE_START) -> Rows:
        """Claim up to n jobs, of each priority those from its mark on."""
        if marks is not FROM_THE_START:
            return await self.fetch_jobs_where(queue, n, types, node, (), "{}", marks)
        with self._answered():
            return await self._run("fetch_jobs", queue, n, types, node, self.max_stored_bytes)

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
        with self._answered():
            return await self._run("fetch_jobs_where", queue, n, types, node, tags, args, self.max_stored_bytes, *marks)

    async def fetch_limited(
        self, queue: str, n: int, types: Sequence[str], node: UUID, tags: Sequence[str], args: str,
        marks: Marks = FROM_THE_START, *, by_keys: bool = False,
    ) -> Rows:  # fmt: skip
        """As fetch_jobs_where, of a limited queue: as far as its limits allow. Gives nothing where it has none.

        Where it is known to be limited `by_keys` that is found out sooner, and nothing else depends on it.
        """
        wanted = queue, n, types, node, tags, args, self.max_stored_bytes
        with self._answered():
            rows = await self.fetch_by_keys(*wanted) if by_keys else None
            return await self._run("fetch_limited", *wanted, *marks) if rows is None else rows

    async def exchange_jobs(
        self, queue: str, n: int, types: Sequence[str], node: UUID, ids: Sequence[int], attempt: int, marks: Marks = FROM_THE_START
    ) -> tuple[int, Rows]:
        """As ack_completed and fetch_jobs in one transaction; gives how many were written down, and the rows that were claimed."""
        if marks is not FROM_THE_START:
            return await self.exchange_jobs_where(queue, n, types, node, (), "{}", ids, attempt, marks)
        with self._answered():
            return self._exchanged(
                ids, await self._run("exchange_jobs", queue, n, types, node, self.max_stored_bytes, ids, attempt)
            )

    async def exchange_jobs_where(
        self, queue: str, n: int, types: Sequence[str], node: UUID, tags: Sequence[str], args: str, ids: Sequence[int],
        attempt: int, marks: Marks = FROM_THE_START,
    ) -> tuple[int, Rows]:  # fmt: skip
        """As ack_completed and fetch_jobs_where in one transaction."""
        claim = queue, n, types, node, tags, args, self.max_stored_bytes, *marks
        with self._answered():
            return self._exchanged(ids, await self._run("exchange_jobs_where", *claim, ids, attempt))

    def _exchanged(self, ids: Sequence[int], rows: Rows) -> tuple[int, Rows]:
        written = rows[0]["written"]
        if written == len(ids):
            self._acked(set(ids))
        return written, rows if rows[0]["id"] is not None else []

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

    async def ready_depth(
        self, queue: str, types: Sequence[str], tags: Sequence[str], args: str, most: int
    ) -> tuple[int, float | None]:
        """How many such jobs are ready, counted up to `most`, and for how many seconds the oldest of those has been."""
        (row,) = await self._run("ready_depth", queue, types, tags, args, most)
        return row["jobs"], row["oldest"]

    async def ack_completed(self, ids: Sequence[int], node: UUID, attempt: int) -> set[int]:
        """Write down that jobs of one attempt number were completed; gives the ids that were."""
        return self._acked(ids_of(await self._run("ack_completed", ids, node, attempt)))

    async def ack_jobs(self, node: UUID, written: Written) -> set[int]:
        """Write down how jobs ended; gives the ids that were."""
        return self._acked(ids_of(await self._run("ack_jobs", node, *written.columns(), self._notify)))

    async def find_acked(
        self, node: UUID, ids: Sequence[int], attempts: Sequence[int], attempted_at: Sequence[datetime | None]
    ) -> set[int]:
        """Which of these claims were written down already by this node."""
        return ids_of(await self._run("find_acked", node, ids, attempts, attempted_at))

    async def stage_jobs(self, limit: int, leader: UUID, term: int, since: datetime = LONG_AGO) -> Staged:
        """Make jobs available whose time has come, of those that were due at an instant or later."""
        (row,) = await self._run("stage_jobs", limit, self._notify, leader, term, since)
        return Staged(row["staged"], row["next"], row["until"], row["seconds"], row["retried"])

    async def serve(self, node: UUID, serves: Mapping[str, Iterable[str]]) -> None:
        """Have it known which job types a node takes from which queues."""
        await self._run("serve", node, to_json({queue: sorted(types) for queue, types in sorted(serves.items())}).decode())

    async def declare_types(self, types: Iterable[Options]) -> None:
        """Have it known what jobs of these types get unless something else is said, for those who enqueue by SQL."""
        if columns := type_columns(types):
            await self._run("declare_types", *columns)

    async def unserved(self, seconds: float) -> Rows:
        """The queues and job types that no living node takes, though such jobs have been ready for longer than so many seconds."""
        return await self._run("unserved", seconds)

    async def lead(self, node: UUID, seconds: float) -> int | None:
        """Lead for so many seconds; gives the term, or None where another leads."""
        rows = await self._run("lead", node, seconds)
        return rows[0]["term"] if rows else None

    async def resign(self, node: UUID) -> None:
        """Stop leading."""
        await self._run("resign", node)

    async def expired_nodes(self, lease_seconds: float) -> list[tuple[UUID, str, bool]]:
        """The nodes whose lease ran out: id and label."""
        return [(row["id"], row["label"], row["is_unknown"]) for row in await self._run("expired_nodes", lease_seconds)]

    async def orphans(self, leader: UUID, term: int) -> set[UUID]:
        """Enter as dead the nodes that jobs are claimed by and that are not known; gives their ids."""
        return {row["id"] for row in await self._run("orphans", leader, term)}

    async def held_by(self, node: UUID, limit: int) -> Rows:
        """The jobs that a node executes: id, type, queue, attempt, max_attempts."""
        return await self._run("held_by", node, limit)

    async def rescue_jobs(
        self,
        node: UUID,
        ids: Sequence[int],
        attempts: Sequence[int],
        delays: Sequence[float],
        leader: UUID,
        term: int,
        forensics: Sequence[str | None] | None = None,
    ) -> set[int]:
        """Take jobs from a dead node, to run again after these delays, or at once where it is the first time; gives those taken.

        `forensics` (JSON) are kept with those that are discarded.
        """
        known = [None] * len(ids) if forensics is None else forensics
        return ids_of(await self._run("rescue_jobs", node, ids, attempts, delays, self._notify, leader, term, known))

    async def lost_claims(self, node: UUID, held: Iterable[int], before: datetime | None) -> tuple[set[int], datetime]:
        """Give back what a node has claimed without knowing it; gives the ids, and PostgreSQL's time."""
        (row,) = await self._run("lost_claims", node, list(map(str, held)), before, self._notify)
        return set(map(int, row["ids"])), row["now"]

    async def queue_depths(self) -> Rows:
        """How many jobs stand in each queue and state, of finished ones the dead letters only, and how long the oldest waited."""
        return await self._run("queue_depths")

    async def look(
        self,
        queues: Sequence[str],
        names: Sequence[str],
        sources: Sequence[tuple[str, Marks]] = (),
        types: Sequence[str] = (),
        since: datetime | None = None,
        node: UUID | None = None,
        breakers: Sequence[str] = (),
    ) -> Look:
        """See what there is to do for the sources and services of a node that goes by these names, and what is asked of queues.

        Each source is a queue and where its claims begin; what waits is looked for where it is due `since` then or later. Breakers
        are seen where they are not closed or have counted failures, and those that are named.
        """
        instants = [str(instant) for _, marks in sources for instant in marks[0]]
        ids = [str(id_) for _, marks in sources for id_ in marks[1]]
        asked = [queue for queue, _ in sources]
        rows = await self._run("look", asked, instants, ids, types, queues, ["", *names], since, node, breakers)
        first = rows[0]
        return Look(
            frozenset(int(place) - 1 for place in first["ready"]),
            {row["queue"]: Control(row["is_paused"], row["max_demand"]) for row in rows if row["queue"] is not None},
            first["next"], first["now"], first["seconds"], first["is_a_node_gone"],
            frozenset(zip(map(int, first["cancelling_ids"] or ()), map(int, first["cancelling_attempts"] or ()), strict=True)),
            {row["queue"]: row["pace"] for row in rows if row["queue"] is not None and row["pace"] is not None},
            () if first["breakers"] is None else STANDINGS.decode(first["breakers"]),
            {row["queue"]: row["limited_at"] for row in rows if row["queue"] is not None and row["pace"] is not None},
        )  # fmt: skip

    async def pause_queue(self, queue: str, node: str = "") -> bool:
        """Pause a queue, for all nodes or those of one name; gives whether that is new."""
        return await self._ask("pause_queue", queue, node)

    async def resume_queue(self, queue: str, node: str = "") -> bool:
        """Have a queue go on, for all nodes or those of one name; gives whether that is new."""
        return await self._ask("resume_queue", queue, node)

    async def scale_queue(self, queue: str, max_demand: int | None, node: str = "") -> bool:
        """Have nodes hold at most so many jobs of a queue, or as many as is declared; gives whether that is new."""
        return await self._ask("scale_queue", queue, node, max_demand)

    async def list_controls(self) -> Rows:
        """What is asked of queues."""
        return await self._run("list_controls")

    async def list_queues(self) -> Rows:
        """How many unfinished jobs stand in each queue and state, and how long the oldest has waited."""
        return await self._run("list_queues")

    async def is_known_queue(self, queue: str) -> bool:
        """Whether a row of any table speaks of a queue, but for finished jobs."""
        (row,) = await self._run("is_known_queue", queue)
        return bool(row["is_known"])

    async def oldest_transactions(self) -> Rows:
        """What keeps vacuum from removing dead rows, the oldest first."""
        return await self._run("oldest_transactions")

    async def describe_server(self) -> asyncpg.Record:
        """The server's version, how safely it writes, its clock, and how full its room for notifications is."""
        (row,) = await self._run("describe_server")
        return row

    async def who_leads(self) -> asyncpg.Record:
        """The node that leads and its term, if any, and for how many seconds none has."""
        (row,) = await self._run("who_leads")
        return row

    async def overdue(self, seconds: float) -> Rows:
        """The queues and job types of jobs that have been ready for longer than so many seconds though a living node takes them."""
        return await self._run("overdue", seconds)

    async def dead_rows(self) -> asyncpg.Record:
        """How many rows the live jobs' table has, and how many that vacuum is yet to remove."""
        (row,) = await self._run("dead_rows")
        return row

    async def get_jobs(self, ids: Sequence[int]) -> Rows:
        """Jobs by id."""
        return await self._run("get_jobs", ids)

    async def list_jobs(self, filters: Filters, after: int | None, limit: int) -> Rows:
        """Jobs, the newest first, older than the one with the id `after`."""
        return await self._run("list_jobs", *filters.columns(), after, limit)

    async def find_jobs(self, filters: Filters, above: int, limit: int) -> tuple[list[int], int | None]:
        """The ids of jobs above an id, in order, of the next READ_AT_ONCE; and above which to go on, None where nothing is left."""
        (row,) = await self._run("find_jobs", *filters.columns(), above, limit, READ_AT_ONCE)
        return row["ids"], row["above"]

    async def count_jobs(self, filters: Filters) -> dict[str, int]:
        """How many jobs there are by state."""
        return {row["state"]: row["jobs"] for row in await self._run("count_jobs", *filters.columns())}

    async def retry_jobs(self, ids: Sequence[int], attempts: int) -> tuple[set[int], list[int]]:
        """Make jobs available at once; gives the ids of those that were, and of those that are left for another time."""
        rows, left = await self._some("retry_jobs", ids, attempts, self._notify)
        return ids_of(rows), left

    async def delete_jobs(self, ids: Sequence[int], connection: Connection | None = None) -> set[int]:
        """Delete jobs that are not executing."""
        deleted, left = set[int](), list(ids)
        while left:
            rows, left = await self._some("delete_jobs", left, connection=connection)
            deleted |= ids_of(rows)
        return deleted

    def _acked(self, ids: set[int]) -> set[int]:
        if self.ends_awaited:
            self._tell_ends(ids)
        return ids

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.lost_answers += 1
            raise

    async def _ask(self, name: str, queue: str, *args: Any) -> bool:
        return await until_done(lambda: self._ask_once(name, queue, *args))

    async def _ask_once(self, name: str, queue: str, *args: Any) -> bool:
        async with self.database.transaction() as connection:
            await self.lock_queue(queue, connection)
            (row,) = await self._run(name, queue, *args, self._notify, connection=connection)
        return bool(row["is_changed"])
