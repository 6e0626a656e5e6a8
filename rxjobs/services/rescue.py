"""Take jobs from nodes that are gone."""

from __future__ import annotations

import logging
from uuid import UUID

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.events import Emit, JobsRescued, NodeLost
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

log = logging.getLogger("rxjobs.rescue")

BATCH = 1000


def rescue(store: Store, own: UUID, *, every_seconds: float, lease_seconds: float, emit: Emit) -> Observable[int]:
    """How many jobs were rescued, again and again. A node is gone when its lease has run out, whatever the age of its jobs."""

    async def once() -> int:
        rescued = 0
        for node, label in await patiently("looking for dead nodes", lambda: store.expired_nodes(lease_seconds)):
            if node == own:  # others may; to take jobs from oneself would only double them
                continue
            emit(NodeLost(node=str(node)))
            ids: set[int] = set()
            while batch := await patiently("rescuing jobs", lambda node=node: store.rescue_jobs(node, BATCH)):  # type: ignore[misc]
                ids |= batch
            await patiently("removing a dead node", lambda node=node: store.bury(node))  # type: ignore[misc]
            log.warning("node %s (%s) is gone, and %d jobs were taken from it", label or node, node, len(ids))
            if ids:
                emit(JobsRescued(node=str(node), ids=sorted(ids)))
            rescued += len(ids)
        return rescued

    return every(lambda: every_seconds, once)
