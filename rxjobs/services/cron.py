"""Make jobs of the slots of cron, each once, whoever leads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec
import reactivex as rx
from reactivex import Observable
from reactivex import operators as ops
from reactivex.subject import Subject

from rxjobs.awaiting import conflate_map, every
from rxjobs.cron_times import Schedule
from rxjobs.definition import NewJob, enqueuing_for
from rxjobs.enqueued import Enqueued
from rxjobs.log_lines import logger
from rxjobs.services.lead import Leadership
from rxjobs.store.database import Connection
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

log = logger("rxjobs.cron")

HEARD_SECONDS, LOOK_SECONDS = 60.0, 20.0
"""How often entries are read anew: where a notification would say that one was changed, and where none is heard."""
STANDBY_SECONDS = 1.0
SOONEST = 0.005
LATE = timedelta(seconds=60)
"""A slot that long ago is a missed one: until then another leader may have been about to take over."""
MOST_MISSED = 100
KEPT_SECONDS = 7 * 86400.0
DECLARE_SECONDS = 60.0

Enqueue = Callable[[Sequence[NewJob], Connection], Awaitable[Sequence[Enqueued]]]

schedule = lru_cache(1024)(Schedule)


def cron(
    store: Store,
    leadership: Leadership,
    enqueue: Enqueue,
    changed: Observable[Any],
    is_listening: Callable[[], bool] = lambda: False,
) -> Observable[int]:
    """How many jobs the leader made of slots, whenever one is due; `changed` says that entries may be others than before."""
    pruned_in: list[int] = []

    async def look() -> tuple[float, int]:
        """The seconds until the next look, and how many jobs were made."""
        term = leadership.term
        if term is None:
            return STANDBY_SECONDS, 0
        made, wait = 0, HEARD_SECONDS if is_listening() else LOOK_SECONDS
        rows = await patiently("reading the entries of cron", store.read_crons)
        if rows and pruned_in != [term]:  # once a term, which is often enough: a slot is a line
            pruned_in[:] = [term]
            await patiently("pruning slots of cron", lambda: store.prune_slots(KEPT_SECONDS, leadership.node, term))
        for row in rows:
            if not row["is_on"]:
                continue
            try:
                times, new = schedule(row["expression"], row["tz"]), msgspec.json.decode(row["job"], type=NewJob)
            except Exception as error:  # written by a newer version, or by hand
                log.error("the entry %s of cron cannot be read here: %s", row["name"], error)
                continue
            now, done_until = row["now"], row["done_until"]
            if times.next(done_until) <= now:
                slots = due(times, row["missed"], done_until, now)
                made += await patiently("making jobs of slots", lambda: make(row, new, slots, term))  # noqa: B023 - awaited here
            wait = min(wait, (times.next(now) - now).total_seconds())
        return wait, made

    async def make(row: Any, new: NewJob, slots: Sequence[datetime], term: int) -> int:
        async with store.database.transaction() as connection:
            taken = await store.take_slots(row["name"], row["done_until"], slots, row["now"], leadership.node, term, connection)
            if not taken:
                return 0
            enqueuing_for.set(row["name"])  # of this service's own context
            made = await enqueue([msgspec.structs.replace(new, scheduled_at=slot, delay=0.0) for slot in taken], connection)
        return sum(not one.duplicate for one in made)

    def begin(_: object) -> Observable[int]:
        again: Subject[float] = Subject()

        async def work(_: object) -> list[int]:
            wait, made = await look()
            again.on_next(wait)
            return [made]

        waits: Observable[float] = rx.merge(again, changed.pipe(ops.map(lambda _: 0.0)), rx.of(0.0))
        return waits.pipe(ops.map(_timer), ops.switch_latest(), conflate_map(work))

    return rx.defer(begin)


def _timer(seconds: float) -> Observable[object]:
    return rx.timer(max(SOONEST, seconds))


def due(times: Schedule, missed: str, done_until: datetime, now: datetime) -> list[datetime]:
    """The slots to be made into jobs now: those that are due, and of those that nobody was there for as many as `missed` says."""
    late = max(done_until, now - LATE)
    most = {"skip": 0, "once": 1, "all": MOST_MISSED}[missed]
    before = times.between(done_until, late, most) if most and late > done_until else []
    if len(before) == MOST_MISSED:
        log.warning("%s: of the slots that were missed the last %d are made up for", times, MOST_MISSED)
    return before + times.between(late, now, 10**9)


def declare(store: Store, node: UUID, columns: Callable[[], Sequence[Sequence[str]]]) -> Observable[None]:
    """Have it known which entries this node declares, again and again: its row may have been made anew meanwhile."""

    async def once() -> None:
        declared = columns()
        if declared and declared[0]:
            await patiently("declaring entries of cron", lambda: store.declare_crons(node, declared))

    return every(lambda: DECLARE_SECONDS, once)
