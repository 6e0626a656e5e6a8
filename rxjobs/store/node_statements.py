"""The statements about nodes, and about how it goes in their queues."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from rxjobs.store.asking import Asking, Rows

Place = tuple[str, int]
"""A queue and a priority: where in the order of ready jobs."""
BEFORE_ALL: Place = "", -1


class NodeStatements(Asking):
    """Nodes: their leases, and what they tell of themselves."""

    async def take_lease(self, node: UUID, label: str, pid: int, seconds: float) -> None:
        """Enter a node."""
        await self._run("take_lease", node, label, pid, seconds)

    async def renew_lease(self, node: UUID, seconds: float, status: str | None = None) -> bool:
        """Keep a node alive, with what it tells of itself (JSON); False where its lease was taken away."""
        return bool(await self._run("renew_lease", node, seconds, status))

    async def leave(self, node: UUID, status: str | None = None) -> None:
        """Give up a node's lease, with what it tells of itself at last (JSON)."""
        await self._run("leave", node, status)

    async def bury(self, node: UUID) -> None:
        """Remove a dead node."""
        await self._run("bury", node)

    async def list_nodes(self) -> Rows:
        """The living nodes, and which queues they take jobs from."""
        return await self._run("list_nodes")

    async def registered_nodes(self, gone_seconds: float) -> Rows:
        """The nodes that are there or went within the last seconds, with what they told of themselves."""
        return await self._run("registered_nodes", gone_seconds)

    async def durations(self, seconds: float, most: int, types: int) -> Rows:
        """How long jobs took that ended of late, of the slowest types: up to `most` jobs are looked at."""
        return await self._run("durations", seconds, most, types)

    async def ready_depths(self, queues: Sequence[str], most: int) -> Rows:
        """How many jobs are ready in each of the queues, counted up to `most`, and how long the oldest of those has waited."""
        return await self._run("ready_depths", queues, most)

    async def age_jobs(self, after: Place, limit: int, seconds: float, leader: UUID, term: int) -> tuple[Place, int] | None:
        """Raise by one step the jobs of the next place that were ready for so long, and wake their queue.

        Gives which place that is, and how many were raised; None where no job is ready behind.
        """
        rows = await self._run("age_jobs", *after, limit, seconds, leader, term, self._notify)
        return ((rows[0]["queue"], rows[0]["priority"]), rows[0]["jobs"]) if rows else None
