"""The nodes, looked at from outside: `app.nodes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rxjobs.checks import check_number
from rxjobs.store.encoding import plain
from rxjobs.store.store import Store
from rxjobs.witness import JobSeen

WATCHED = "~watched"
"""The notification that has nodes tell of themselves more often for a while: no queue has this name."""
GONE_SECONDS = 3600.0
DAY = 86400.0


class StageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A stage: jobs a second that it began with, those that it works on and those that wait in it; `limit` is how many it works on
    at once, 0 where it answers at once or only has them wait. `errors` and `dropped` are counts since its node's start.
    """

    name: str
    rate: float | None = None
    running: int = 0
    waiting: int = 0
    limit: int = 0
    errors: int = 0
    dropped: int = 0


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline of a node: the queues that it takes jobs from, how many it holds, and how many of those its stages work on.

    `max_demand` is how many it holds at most, `demand` how many more it would take, `pending` those whose end is not written down
    yet, `rate` how many a second it ended. Rates are between two heartbeats, None before there were two.
    """

    name: str
    queues: tuple[str, ...] = ()
    held: int = 0
    running: int = 0
    is_paused: bool = False
    max_demand: int = 0
    demand: int = 0
    pending: int = 0
    failed: int = 0
    """Attempts that failed in its queues on this node since its start."""
    rate: float | None = None
    rates: Mapping[str, float] = {}
    """The same by queue."""
    stages: tuple[StageStatus, ...] = ()
    """From the first to the last, at most 50."""


class ExecutorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs run on: places that are taken, places there are (None: nobody knows), and calls that wait for one."""

    type: str
    usage: int = 0
    limit: int | None = 0
    waiting: int = 0


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a node tells of itself with each heartbeat. Counts are since its start; instants are by its own clock."""

    host: str | None = None
    rxjobs: str | None = None
    """The version that it runs."""
    python: str | None = None
    pipelines: tuple[PipelineStatus, ...] = ()
    executors: tuple[ExecutorStatus, ...] = ()
    running: int = 0
    """Jobs that its stages work on."""
    completed: int = 0
    failed: int = 0
    """Attempts that failed, of which `discarded` were the last ones."""
    discarded: int = 0
    last_job: JobSeen | None = None
    """The job that ended there last."""
    load: tuple[float, ...] | None = None
    """Its machine's load over 1, 5 and 15 minutes."""
    cpus: int | None = None
    memory: int | None = None
    """Bytes that it takes."""
    loop_delay: float | None = None
    """The longest that its event loop took to answer within ten seconds, in seconds."""
    lease_seconds: float | None = None
    """How long its lease lasts from each heartbeat."""


class RegisteredNode(NodeStatus, frozen=True, kw_only=True):
    """A node: who it is, whether it lives, and what it told of itself with its last heartbeat.

    `state` is living; expired, while its lease has run out and its jobs are yet to be taken from it; left, where it ended by
    itself; or lost.
    """

    id: UUID
    label: str
    pid: int
    started_at: datetime
    state: str
    lease: float | None = None
    """Seconds until its lease runs out, if it lives."""
    age: float | None = None
    """Seconds since it told of itself, while its lease holds."""
    gone_at: datetime | None = None
    is_leading: bool = False
    queues: tuple[str, ...] = ()
    """The queues that it takes jobs from, or took them from."""


class Nodes:
    """The nodes of this schema."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    async def watch(self) -> None:
        """Have the nodes tell of themselves about once a second for a quarter of a minute, those that hear notifications."""
        await self._store().notify_queues([WATCHED])

    async def list(self, *, gone: float = GONE_SECONDS) -> list[RegisteredNode]:
        """The nodes: those that are there, by label, then those that went within `gone` seconds, at most a day, the last one first.

        What a node tells of itself is as old as its last heartbeat.
        """
        check_number("nodes.list", "gone", gone, 0, DAY, int | float)
        nodes = [_node(row) for row in await self._store().registered_nodes(float(gone))]
        here = sorted((node for node in nodes if node.gone_at is None), key=lambda node: (node.label, node.started_at, node.id))
        return here + [node for node in nodes if node.gone_at is not None]


def _node(row: Any) -> RegisteredNode:
    try:
        status = msgspec.convert(plain(row["status"]) or {}, NodeStatus)
    except msgspec.ValidationError:  # of a version that tells it otherwise, or of another program
        status = NodeStatus()
    serves, lasts = plain(row["serves"]), status.lease_seconds
    queues = set(serves) if isinstance(serves, dict) else set()
    if row["gone_at"] is not None:  # when it left it took jobs from none any more
        queues.update(queue for pipeline in status.pipelines for queue in pipeline.queues)
    return RegisteredNode(
        **{name: getattr(status, name) for name in NodeStatus.__struct_fields__},
        id=row["id"],
        label=row["label"],
        pid=row["pid"],
        started_at=row["started_at"],
        state=row["state"],
        lease=row["lease"],
        age=None if lasts is None or row["lease"] is None else max(0.0, lasts - row["lease"]),
        gone_at=row["gone_at"],
        is_leading=row["is_leading"],
        queues=tuple(sorted(queues)),
    )
