"""The nodes, looked at from outside: `app.nodes`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rxjobs.definition import check_number
from rxjobs.store.encoding import plain
from rxjobs.store.store import Store
from rxjobs.witness import JobSeen

GONE_SECONDS = 3600.0
DAY = 86400.0


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline of a node: the queues that it takes jobs from, how many it holds, and how many of those its stages work on."""

    name: str
    queues: tuple[str, ...] = ()
    held: int = 0
    running: int = 0
    is_paused: bool = False


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
    gone_at: datetime | None = None
    is_leading: bool = False
    queues: tuple[str, ...] = ()
    """The queues that it takes jobs from, or took them from."""


class Nodes:
    """The nodes of this schema."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

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
    serves = plain(row["serves"])
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
        gone_at=row["gone_at"],
        is_leading=row["is_leading"],
        queues=tuple(sorted(queues)),
    )
