"""Tell of jobs that nobody takes: of a queue that no node reads, or of a type that none of those who read it knows."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.events import Emit, Event, JobsRoutable, JobsUnroutable, QueueServed, QueueUnserved
from rxjobs.services.lead import Leadership
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

log = logging.getLogger("rxjobs.unserved")

EVERY_SECONDS = 60.0
WAITED_SECONDS = 300.0
"""For how long a job has been ready before it is asked who takes it: in a deployment the new nodes may come last."""
SHARE = 100
"""To look takes a hundredth of one connection's time at most."""

Unserved = tuple[str, str | None]
"""A queue that nobody reads, or a queue and a job type that none of its readers knows."""


def unserved(
    store: Store,
    leadership: Leadership,
    *,
    emit: Emit,
    every_seconds: float = EVERY_SECONDS,
    waited_seconds: float = WAITED_SECONDS,
) -> Observable[int]:
    """How many jobs nobody takes, again and again; while this node does not lead, 0. Each step is told of once."""
    told: dict[Unserved, int] = {}
    wait = every_seconds
    start = time.monotonic() + every_seconds  # by then nodes that begin together have said what they take

    async def once() -> int:
        nonlocal told, wait
        if leadership.term is None or time.monotonic() < start:
            told = {}
            return 0
        began = time.monotonic()
        rows = await patiently("looking for jobs that nobody takes", lambda: store.unserved(waited_seconds))
        wait = max(every_seconds, SHARE * (time.monotonic() - began))
        found = _found(rows)
        for what, count in found.items():
            if what not in told:
                _tell(emit, what, count)
        for what in told.keys() - found.keys():
            _tell_served(emit, what)
        told = found
        return sum(found.values())

    return every(lambda: wait, once)


def _found(rows: Iterable[Any]) -> dict[Unserved, int]:
    found: dict[Unserved, int] = {}
    for row in rows:
        what = row["queue"], row["type"] if row["is_queue_served"] else None
        found[what] = found.get(what, 0) + row["jobs"]
    return found


def _tell(emit: Emit, what: Unserved, count: int) -> None:
    queue, type_ = what
    event: Event
    if type_ is None:
        log.error("%d jobs of queue %s are ready, and no node that lives takes jobs from it", count, queue)
        event = QueueUnserved(queue=queue, count=count)
    else:
        log.error("%d jobs of type %s in queue %s are ready, and no node that lives knows that type", count, type_, queue)
        event = JobsUnroutable(queue=queue, type=type_, count=count)
    emit(event)


def _tell_served(emit: Emit, what: Unserved) -> None:
    queue, type_ = what
    if type_ is None:
        log.warning("queue %s has no more jobs that nobody takes", queue)
        emit(QueueServed(queue=queue))
    else:
        log.warning("queue %s has no more jobs of type %s that nobody takes", queue, type_)
        emit(JobsRoutable(queue=queue, type=type_))
