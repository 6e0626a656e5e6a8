"""Take jobs from nodes that are gone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.decide import wait_after
from rxjobs.definition import Definition
from rxjobs.events import Emit, JobDiscarded, JobsRescued, NodeLost
from rxjobs.job import Job
from rxjobs.log_lines import logger
from rxjobs.outcome import Discard
from rxjobs.services.lead import Leadership
from rxjobs.services.maintenance import Done, maintained
from rxjobs.store.encoding import to_json
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store
from rxjobs.store.twins import give_way

log = logger("rxjobs.rescue")

BATCH = 1000
SILENT, UNKNOWN = "heartbeat_lost", "worker_gone"
"""Why jobs are taken from a node: it renewed its lease no more, or it had left before, and its last claim came after that."""
ORPHANS_SECONDS = 60.0
"""How often jobs are looked for whose node nobody knows: there are hardly ever any, and it costs a look at the whole table."""


class DeadLetters(Protocol):
    """Who knows what is to be kept with jobs that are discarded, and whom to tell."""

    async def forensics(self, jobs: Sequence[Job]) -> Sequence[Mapping[str, Any] | None]: ...

    def buried(self, jobs: Sequence[Job]) -> None: ...


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
    dead_letters: DeadLetters | None = None,
) -> Observable[int]:
    """How many jobs the leader rescued, again and again. A node is gone when its lease has run out, whatever its jobs do.

    None is looked for while it is known that there was none so many seconds ago, which is what `may_be_gone` is asked.
    A job that was rescued before waits for the backoff of its type, or for the default one where the leader does not know the type.
    """

    orphans_looked_for = time.monotonic()

    async def once() -> int:
        if leadership.term is None or not (await take_in_orphans() or may_be_gone(every_seconds / 2)):
            return 0
        return await maintained(emit, "rescue", rescue_from_all)

    async def rescue_from_all() -> Done:
        gone = await patiently("looking for dead nodes", lambda: store.expired_nodes(lease_seconds))
        # others may take its jobs; to take them from oneself would only double them
        return Done(sum([await rescue_from(*node) for node in gone if node[0] != leadership.node]))

    async def rescue_from(node: UUID, label: str, is_unknown: bool) -> int:
        emit(NodeLost(node=str(node)))
        reason = UNKNOWN if is_unknown else SILENT
        count = 0
        while queues := await take(node):
            emit(JobsRescued(node=str(node), ids=sorted(queues), queues=Counter(queues.values()), reason=reason))
            count += len(queues)
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

    async def take(node: UUID) -> dict[int, str]:
        """Some of the jobs of a node, each with its queue."""
        term = leadership.term
        if term is None:
            return {}
        rows = await patiently("looking for a dead node's jobs", lambda: store.held_by(node, BATCH))
        if not rows:
            return {}
        ids, attempts = [row["id"] for row in rows], [row["attempt"] for row in rows]
        jobs = [job(row) for row in rows]
        delays = [wait_after(one, None) for one in jobs]
        last = [one for one, row in zip(jobs, rows, strict=True) if is_last(row)]
        known = await what_is_known(last)

        async def rescued() -> set[int]:
            forensics = [known.get(id_) for id_ in ids]
            return await store.rescue_jobs(node, ids, attempts, delays, leadership.node, term, forensics)

        # asked again, since its answer was lost, it answers the same: so none goes untold
        taken = await patiently("rescuing jobs", lambda: give_way(store, rescued, ids, node))
        bury([one for one in last if one.id in taken])
        return {row["id"]: row["queue"] for row in rows if row["id"] in taken}

    async def what_is_known(jobs: Sequence[Job]) -> dict[int, str]:
        """As JSON, of jobs that are to be discarded."""
        if dead_letters is None or not jobs:
            return {}
        found = await dead_letters.forensics(jobs)
        return {job.id: to_json(known).decode() for job, known in zip(jobs, found, strict=True) if known is not None}

    def bury(jobs: Sequence[Job]) -> None:
        """Tell of jobs that were discarded."""
        for one in jobs:
            emit(JobDiscarded(job=one, outcome=Discard("its node was lost, and its attempts are used up")))
        if dead_letters is not None:
            dead_letters.buried(jobs)

    def is_last(row: Any) -> bool:
        return row["attempt"] >= row["max_attempts"] and not row["is_to_be_cancelled"]

    def job(row: Any) -> Job:
        type_ = row["type"]
        return Job(
            id=row["id"], type=type_, queue=row["queue"], attempt=row["attempt"], max_attempts=row["max_attempts"],
            definition=definitions.get(type_),
        )  # fmt: skip

    return every(lambda: every_seconds / 2, once)
