"""Take jobs from nodes that are gone."""

from __future__ import annotations

import logging
import time
from uuid import UUID

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.events import Emit, JobsRescued, NodeLost
from rxjobs.services.lead import Leadership
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

log = logging.getLogger("rxjobs.rescue")

BATCH = 1000
ORPHANS_SECONDS = 60.0
"""How often jobs are looked for whose node nobody knows: there are hardly ever any, and it costs a look at the whole table."""


def rescue(
    store: Store,
    leadership: Leadership,
    *,
    every_seconds: float,
    lease_seconds: float,
    emit: Emit,
    orphans_seconds: float = ORPHANS_SECONDS,
) -> Observable[int]:
    """How many jobs the leader rescued, again and again. A node is gone when its lease has run out, whatever its jobs do."""

    orphans_looked_for = time.monotonic()

    async def once() -> int:
        if leadership.term is None:
            return 0
        await take_in_orphans()
        gone = await patiently("looking for dead nodes", lambda: store.expired_nodes(lease_seconds))
        # others may take its jobs; to take them from oneself would only double them
        return sum([await rescue_from(node, label) for node, label in gone if node != leadership.node])

    async def rescue_from(node: UUID, label: str) -> int:
        emit(NodeLost(node=str(node)))
        ids: set[int] = set()
        while batch := await take(node):
            ids |= batch
        await patiently("removing a dead node", lambda: store.bury(node))
        log.warning("node %s (%s) is gone, and %d jobs were taken from it", label or node, node, len(ids))
        if ids:
            emit(JobsRescued(node=str(node), ids=sorted(ids)))
        return len(ids)

    async def take_in_orphans() -> None:
        nonlocal orphans_looked_for
        term = leadership.term
        if term is None or time.monotonic() < orphans_looked_for + orphans_seconds:
            return
        found = await patiently("looking for jobs of unknown nodes", lambda: store.orphans(leadership.node, term))
        orphans_looked_for = time.monotonic()
        if found:
            log.warning("jobs are claimed by %d nodes that are not known, and are taken from them", len(found))

    async def take(node: UUID) -> set[int]:
        term = leadership.term
        if term is None:
            return set()
        return await patiently("rescuing jobs", lambda: store.rescue_jobs(node, BATCH, leadership.node, term))

    return every(lambda: every_seconds, once)
