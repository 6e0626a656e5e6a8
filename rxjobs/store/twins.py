"""Unique jobs: inserting them, and what becomes of one that would stand for a key which another has taken meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar
from uuid import UUID

import asyncpg
import msgspec

from rxjobs.definition import NewJob
from rxjobs.enqueued import Enqueued
from rxjobs.errors import DuplicateJob
from rxjobs.store.database import Connection
from rxjobs.store.store import Store

T = TypeVar("T")

ANEW = 10
"""How often a transaction that does nothing else is begun anew for the sake of twins that have ended meanwhile."""


class TwinsEnded(Exception):
    """Some of the jobs were kept out by twins that are gone by now."""


async def insert_unique_anew(store: Store, jobs: Sequence[NewJob], *, notify: bool, refuses: bool) -> list[Enqueued]:
    """As insert_unique, in a transaction of its own, which begins anew where some are to be inserted once more.

    Else it would hold some keys while it waits for others, in no order any more: in a circle with whoever does the same.
    """
    for time in range(ANEW + 1):
        with suppress(TwinsEnded):
            async with store.database.transaction() as ours:
                return await insert_unique(store, jobs, ours, notify=notify, refuses=refuses, at_once=time < ANEW)
    raise AssertionError("the last time it is not at once")


async def insert_unique(
    store: Store, jobs: Sequence[NewJob], connection: Connection, *, notify: bool, refuses: bool, at_once: bool = False
) -> list[Enqueued]:
    """Insert jobs some of which are unique, in the connection's transaction; gives what there is of each then, in order.

    Raises DuplicateJob, where it `refuses`, for a duplicate that was to be an error; and TwinsEnded, where it is to be done
    `at_once`, instead of inserting some once more.
    """
    found: list[Enqueued | None] = [None] * len(jobs)
    while missing := [place for place, one in enumerate(found) if one is None]:
        rows = await store.insert_unique([jobs[place] for place in missing], connection, notify=notify)
        own = {missing[row["place"] - 1]: Enqueued(row["id"], row["state"]) for row in rows}
        twins = await _find_twins(store, jobs, missing, own, connection)
        # who was inserted beside one that has ended meanwhile, and still stands for the key, was never there
        await store.delete_jobs([own.pop(place).id for place in twins if place in own], connection)
        for place, twin in twins.items():
            if refuses and (refused := refusal(jobs[place], twin)) is not None:
                raise refused
        # in the order of their ids, so that two who replace the same ones never wait for each other in a circle
        for place, twin in sorted(twins.items(), key=lambda one: one[1].id):
            found[place] = await _replaced(store, jobs[place], twin, connection)
        for place, enqueued in own.items():
            found[place] = enqueued
        # a place that is still empty had a twin that is gone by now: once more
        if at_once and None in found:
            raise TwinsEnded
    return [one for one in found if one is not None]


async def _find_twins(
    store: Store, jobs: Sequence[NewJob], places: Sequence[int], own: dict[int, Enqueued], connection: Connection
) -> dict[int, Enqueued]:
    """Who stands for the keys of jobs that were not inserted, and of those whose key may be a finished job's."""
    asked = [
        (place, unique)
        for place in places
        if (unique := jobs[place].unique) is not None and (place not in own or unique.outlives_its_job)
    ]
    if not asked:
        return {}
    # jobs of one batch may have one key: the one that was inserted is the twin of the others
    rows = await store.find_twins(
        [unique.key for _, unique in asked],
        [unique.period for _, unique in asked],
        [own[place].id if place in own else 0 for place, _ in asked],
        connection,
    )
    return {asked[row["place"] - 1][0]: Enqueued(row["id"], row["state"], duplicate=True) for row in reversed(rows)}


async def _replaced(store: Store, job: NewJob, twin: Enqueued, connection: Connection) -> Enqueued:
    if job.unique is None or not job.unique.replace:
        return twin
    state = await store.replace_job(twin.id, job, connection)
    return msgspec.structs.replace(twin, state=state or twin.state)


def refusal(job: NewJob, enqueued: Enqueued) -> DuplicateJob | None:
    """What whoever enqueues a job is to be told, if its key was taken and that was to be an error."""
    if not enqueued.duplicate or job.unique is None or job.unique.on_conflict != "raise":
        return None
    return DuplicateJob(f"{job.type}: job {enqueued.id}, which is {enqueued.state}, has the same unique key", enqueued)


async def give_way(
    store: Store, statement: Callable[[], Awaitable[T]], ids: Sequence[int] | None = None, dead_node: UUID | None = None
) -> T:
    """Run a statement that makes jobs stand for their keys again. Those that have a twin by now are cancelled, and say so.

    They are among `ids`, or else those that are to be staged; what is executing is only taken from a dead node.
    """
    while True:
        try:
            return await statement()
        except asyncpg.UniqueViolationError:
            twins = await store.twins_of(ids)
            if twins:
                await store.cancel_twins(list(twins), dead_node, list(twins.values()))
