"""Take jobs from nodes that are gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.decide import wait_after
from rxjobs.definition import Definition
from rxjobs.events import Emit, JobsRescued, NodeLost
from rxjobs.job import Job
from rxjobs.services.lead import Leadership
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store
from rxjobs.store.twins import give_way

log = logging.getLogger("rxjobs.rescue")

BATCH = 1000
ORPHANS_SECONDS = 60.0
"""How often jobs are looked for whose node nobody knows: there are hardly ever any, and it costs a look at the whole table."""


def rescue(
    store: Store,
    leadership: Leadership,
    definitions: Mapping[str, Definition[..., Any]],
    *,
    every_seconds: float,
    lease_seconds: float,
    emit: Emit,
    orphans_seconds: float = ORPHANS_SECONDS,
    may_be_gone: Callable[[float], bool] = lambda seconds: True,
) -> Observable[int]:
    """How many jobs the leader rescued, again and again. A node is gone when its lease has run out, whatever its jobs do.

    None is looked for while it is known that there was none so many seconds ago, which is what `may_be_gone` is asked.
    A job that was rescued before waits for the backoff of its type, or for the default one where the leader does not know the type.
    """

    orphans_looked_for = time.monotonic()

    async def once() -> int:
        if leadership.term is None or not (await take_in_orphans() or may_be_gone(every_seconds / 2)):
            return 0
        gone = await patiently("looking for dead nodes", lambda: store.expired_nodes(lease_seconds))
        # others may take its jobs; to take them from oneself would only double them
        return sum([await rescue_from(node, label) for node, label in gone if node != leadership.node])

    async def rescue_from(node: UUID, label: str) -> int:
        emit(NodeLost(node=str(node)))
        count = 0
        while ids := await take(node):
            emit(JobsRescued(node=str(node), ids=sorted(ids)))
            count += len(ids)
        await patiently("removing a dead node", lambda: store.bury(node))
        log.warning("node %s (%s) is gone, and %d jobs were taken from it", label or node, node, count)
        return count

    async def take_in_orphans() -> bool:
        nonlocal orphans_looked_for
        term = leadership.term
        if term is None or time.monotonic() < orphans_looked_for + orphans_seconds:
            return False
        found = await patiently("looking for jobs of unknown nodes", lambda: store.orphans(leadership.node, term))
        orphans_looked_for = time.monotonic()
        if found:
            log.warning("jobs are claimed by %d nodes that are not known, and are taken from them", len(found))
        return bool(found)

    async def take(node: UUID) -> set[int]:
        term = leadership.term
        if term is None:
            return set()
        rows = await patiently("looking for a dead node's jobs", lambda: store.held_by(node, BATCH))
        if not rows:
            return set()
        ids, attempts = [row["id"] for row in rows], [row["attempt"] for row in rows]
        delays = [wait_after(job(row), None) for row in rows]

        async def rescued() -> set[int]:
            return await store.rescue_jobs(node, ids, attempts, delays, leadership.node, term)

        # asked again, since its answer was lost, it answers the same: so none goes untold
        return await patiently("rescuing jobs", lambda: give_way(store, rescued, ids, node))

    def job(row: Any) -> Job:
        type_ = row["type"]
        return Job(
            id=row["id"], type=type_, attempt=row["attempt"], max_attempts=row["max_attempts"], definition=definitions.get(type_)
        )

    return every(lambda: every_seconds / 2, once)
