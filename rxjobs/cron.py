"""Jobs that come again at their times: `app.cron`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from rxjobs.client import Client
from rxjobs.cron_times import Schedule
from rxjobs.definition import NewJob
from rxjobs.enqueued import Enqueued
from rxjobs.errors import InvalidOption, UnknownCron
from rxjobs.failure import clean
from rxjobs.store.store import Store

NAME_LIMIT = 200

Missed = Literal["skip", "once", "all"]


class CronEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry: when it is due, what becomes of slots that nobody was there for, and the job that is made of each.

    `is_declared` is whether code declares it: then it is on while a living node does. None is while it is paused. `next_slot` is
    the one that comes next, if it is on.
    """

    name: str
    expression: str
    tz: str
    missed: str
    type: str
    queue: str
    is_declared: bool
    is_on: bool = False
    paused_at: datetime | None = None
    next_slot: datetime | None = None


class Declared(msgspec.Struct, frozen=True):
    """An entry that code declares."""

    name: str
    schedule: Schedule
    missed: Missed
    job: NewJob


class Cron:
    """The entries of cron: `app.cron(...)` declares one in code, the methods look after those that are there at run time.

    Every slot is made into one job across all nodes, through changes of the leader and of clocks: its `scheduled_at` is the slot.
    """

    def __init__(self, store: Callable[[], Store], client: Callable[[], Client]) -> None:
        self._store = store
        self._client = client
        self._declared: dict[str, Declared] = {}

    def __call__(
        self, expression: str, new: NewJob, *, tz: str = "UTC", missed: Missed = "once", name: str | None = None
    ) -> CronEntry:
        """Declare an entry: `app.cron("0 8 * * 1-5", send_digest.new(), tz="Europe/Berlin")`.

        Five fields (minute, hour, day, month, weekday), six with seconds first, or `@hourly` and the like. `missed` says what
        becomes of slots that were due more than a minute ago when a node is there again: "once" makes one job of them all, "all"
        one of each (at most 100), "skip" none. The name is by default made of the job's type, the expression and the zone.
        Raises InvalidOption for what could never come, and for a name that is taken.
        """
        schedule, job = _checked(expression, new, tz, missed)
        name = self._free_name(f"{job.type} {schedule.expression} {tz}") if name is None else _checked_name(name)
        if name in self._declared:
            raise InvalidOption(f"two entries of cron are named {name!r}; give one of them another name: app.cron(..., name=...)")
        self._declared[name] = declared = Declared(name, schedule, missed, job)
        return _entry(declared)

    def columns(self) -> Sequence[Sequence[str]]:
        """The declared entries as columns: names, expressions, time zones, what becomes of missed slots, jobs (JSON)."""
        rows = [(one.name, one.schedule.expression, one.schedule.tz, one.missed, _json(one.job)) for one in self._declared.values()]
        return [list(column) for column in zip(*rows, strict=True)]

    async def list(self) -> Sequence[CronEntry]:
        """The entries that nodes know of, by name."""
        return [_entry_of(row) for row in await self._store().read_crons()]

    async def add(self, name: str, expression: str, new: NewJob, *, tz: str = "UTC", missed: Missed = "once") -> bool:
        """Make an entry at run time, or change the one of that name; gives whether it is new. It holds until it is removed.

        One that code declares is changed too, until a node that declares it starts again.
        """
        schedule, job = _checked(expression, new, tz, missed)
        return await self._store().save_cron(_checked_name(name), schedule.expression, tz, missed, _json(job))

    async def pause(self, name: str) -> bool:
        """Let its slots go by until it is resumed; gives whether that is new. Raises UnknownCron."""
        return await self._known(name, await self._store().pause_cron(name, pauses=True))

    async def resume(self, name: str) -> bool:
        """Make jobs of its slots again, from now on; gives whether that is new. Raises UnknownCron."""
        return await self._known(name, await self._store().pause_cron(name, pauses=False))

    async def remove(self, name: str) -> bool:
        """Remove an entry; gives False where a living node declares it, and so enters it again. Raises UnknownCron."""
        return not await self._known(name, await self._store().remove_cron(name))

    async def run(self, name: str) -> Enqueued:
        """Enqueue the job of an entry now, whatever its times. Raises UnknownCron."""
        row = next((row for row in await self._store().read_crons() if row["name"] == name), None)
        await self._known(name, None if row is None else True)
        assert row is not None  # noqa: S101 - known
        return await self._client().enqueue(msgspec.json.decode(row["job"], type=NewJob))

    async def enqueue_slots(self, news: Sequence[NewJob], connection: Any) -> Sequence[Enqueued]:
        """Enqueue the jobs of slots, in a transaction."""
        return await self._client().enqueue_many(news, connection)

    async def _known(self, name: str, found: bool | None) -> bool:
        if found is not None:
            return found
        names = ", ".join(repr(one.name) for one in await self.list()) or "none"
        raise UnknownCron(f"there is no entry of cron named {name!r:.200}; there are {names}")

    def _free_name(self, name: str) -> str:
        count = sum(one == name or one.startswith(f"{name} #") for one in self._declared)
        return f"{name} #{count + 1}" if count else name


def _checked(expression: str, new: Any, tz: str, missed: Any) -> tuple[Schedule, NewJob]:
    if not isinstance(new, NewJob):
        raise InvalidOption(f"app.cron takes what a job type's new(...) made, such as send_digest.new(), not {new!r:.100}")
    if missed not in ("skip", "once", "all"):
        raise InvalidOption(f"missed is 'skip', 'once' or 'all', not {missed!r:.100}")
    if new.delay or new.scheduled_at is not None:
        raise InvalidOption(f"{new.type}: a job of cron is due at its slot: leave delay and scheduled_at out")
    unique = new.unique
    if unique is not None and unique.on_conflict == "raise":  # nobody is there to be told
        new = msgspec.structs.replace(new, unique=msgspec.structs.replace(unique, on_conflict="skip"))
    return Schedule(expression, tz), new


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not name.strip() or clean(name, NAME_LIMIT) != name:
        raise InvalidOption(f"an entry of cron is named by text of at most {NAME_LIMIT} characters, not {name!r:.250}")
    return name


def _json(job: NewJob) -> str:
    return msgspec.json.encode(job).decode()


def _entry(declared: Declared) -> CronEntry:
    return CronEntry(
        name=declared.name,
        expression=declared.schedule.expression,
        tz=declared.schedule.tz,
        missed=declared.missed,
        type=declared.job.type,
        queue=declared.job.queue,
        is_declared=True,
    )


def _entry_of(row: Any) -> CronEntry:
    job = msgspec.json.decode(row["job"], type=NewJob)
    return CronEntry(
        name=row["name"],
        expression=row["expression"],
        tz=row["tz"],
        missed=row["missed"],
        type=job.type,
        queue=job.queue,
        is_declared=row["is_declared"],
        is_on=row["is_on"],
        paused_at=row["paused_at"],
        next_slot=Schedule(row["expression"], row["tz"]).next(row["now"]) if row["is_on"] else None,
    )
