"""Tell of jobs that nobody takes: of a queue that no node reads, or of a type that none of those who read it knows."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from reactivex import Observable
from reactivex import operators as ops

from rxjobs.awaiting import every
from rxjobs.events import Emit, Event, JobsRoutable, JobsUnroutable, QueueServed, QueueUnserved
from rxjobs.log_lines import logger
from rxjobs.services.lead import Leadership
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

log = logger("rxjobs.unserved")

WAITED_SECONDS = 300.0
"""For how long a job has been ready before it is asked who takes it: in a deployment the new nodes may come last."""
ABOUT = 0.9
"""What is due at a beat of the process may be a little early."""
SHARE = 100
"""To look takes a hundredth of one connection's time at most."""

Unserved = tuple[str, str | None]
"""A queue that nobody reads, or a queue and a job type that none of its readers knows."""


def unserved(
    store: Store,
    leadership: Leadership,
    *,
    emit: Emit,
    every_seconds: float,
    waited_seconds: float = WAITED_SECONDS,
) -> Observable[int]:
    """How many jobs nobody takes, again and again; while this node does not lead, 0. Each step is told of once."""
    told: dict[Unserved, int] = {}
    wait = every_seconds
    start = time.monotonic() + ABOUT * every_seconds  # by then nodes that begin together have said what they take

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


def unserved_so_far(store: Store, leadership: Leadership, *, first_seconds: float) -> Observable[int]:
    """How many jobs nobody takes yet: asked after a moment, and then half as often each time, until `unserved` would tell.

    What is found goes to the log only, once each: whoever tries something out looks there, and a deployment may not be over.
    """
    told: set[Unserved] = set()
    wait = first_seconds
    start = time.monotonic() + ABOUT * first_seconds

    async def once() -> int:
        nonlocal wait
        if leadership.term is None or time.monotonic() < start:
            return 0
        rows = await patiently("looking for jobs that nobody takes", lambda: store.unserved(first_seconds))
        found = _found(rows, has_scripts_apart=True)
        wait *= 2
        for what in found.keys() - told:
            log.warning("%s so far; %s", _said(what, found[what]), _advice(what))
            told.add(what)
        return sum(found.values())

    return every(lambda: wait, once).pipe(ops.take_while(lambda _: wait < WAITED_SECONDS))


def _found(rows: Iterable[Any], *, has_scripts_apart: bool = False) -> dict[Unserved, int]:
    found: dict[Unserved, int] = {}
    for row in rows:
        is_of_type = row["is_queue_served"] or (has_scripts_apart and is_of_a_script(row["type"]))
        what = row["queue"], row["type"] if is_of_type else None
        found[what] = found.get(what, 0) + row["jobs"]
    return found


def _tell(emit: Emit, what: Unserved, count: int) -> None:
    queue, type_ = what
    log.error("%s; %s", _said(what, count), _advice(what))
    event: Event = QueueUnserved(queue=queue, count=count)
    if type_ is not None:
        event = JobsUnroutable(queue=queue, type=type_, count=count)
    emit(event)


def _said(what: Unserved, count: int) -> str:
    queue, type_ = what
    if type_ is None:
        return f"{count} jobs of queue {queue} are ready, and no node that lives takes jobs from it"
    return f"{count} jobs of type {type_} in queue {queue} are ready, and no node that lives knows that type"


def _advice(what: Unserved) -> str:
    queue, type_ = what
    if type_ is None:
        return (
            f"start a node for it: rxjobs run MODULE:APP --queue {queue}=10. If the name is misspelled, delete them: rxjobs jobs "
            f"delete --queue {queue}"
        )
    if is_of_a_script(type_):
        return (
            "they are from a program that was started as a script, where each module's name is __main__: declare job types in a "
            "module that programs and nodes import, or give them a name: @app.job(name=…)"
        )
    return "start a node whose app has it: rxjobs run MODULE:APP, of a module that imports the one that declares it"


def is_of_a_script(type_: str) -> bool:
    """Whether a job type has the name that it gets where its module is the program itself."""
    return type_.startswith("__main__.")


def _tell_served(emit: Emit, what: Unserved) -> None:
    queue, type_ = what
    if type_ is None:
        log.warning("queue %s has no more jobs that nobody takes", queue)
        emit(QueueServed(queue=queue))
    else:
        log.warning("queue %s has no more jobs of type %s that nobody takes", queue, type_)
        emit(JobsRoutable(queue=queue, type=type_))
