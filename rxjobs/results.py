"""Waiting for the ends of jobs, whoever runs them: one look at all of them, soon at first and then less and less often."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from rxjobs.errors import NotOpen
from rxjobs.stopping import keep
from rxjobs.store.patience import patiently
from rxjobs.store.store import Rows, Store

FIRST = 0.01
"""Seconds until a job is looked for that somebody begins to wait for."""
SHARE = 0.5
"""A job is looked for again once it was waited for longer by so much, but not less often than in every `longest` seconds."""
TOGETHER = 0.005
"""Who is to be looked for so much later is looked for now."""
BATCH = 1000


class Ended(NamedTuple):
    """A job that has ended, or, where its state is None, is not there."""

    state: str | None
    type: str | None = None
    result: str | None = None


class Awaited:
    """One job that is waited for, by any number of callers."""

    __slots__ = ("due", "future", "since", "waiters")

    def __init__(self, now: float) -> None:
        self.since = now
        self.due = now
        self.future: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.waiters = 0


class Endings:
    """The ends of jobs, as far as somebody waits for them."""

    def __init__(self, store: Store, longest: float) -> None:
        self._store = store
        self._longest = longest
        self._awaited: dict[int, Awaited] = {}
        self._changed = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._is_closed = False

    async def of(self, id_: int) -> Ended:
        """Wait for the end of a job. Raises NotOpen when the app is closed first."""
        if self._is_closed:
            raise _closed(id_)
        awaited = self._awaited.get(id_)
        if awaited is None:
            awaited = self._awaited[id_] = Awaited(_now())
            self._store.ends_awaited[id_] = lambda: self._is_over(id_)
            self._begin()
        awaited.waiters += 1
        try:
            return await asyncio.shield(awaited.future)
        finally:
            awaited.waiters -= 1
            if not awaited.waiters:
                self._forget(id_, awaited)

    def close(self) -> None:
        """Let nobody wait any longer."""
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()
        for id_, awaited in tuple(self._awaited.items()):
            self._settle(id_, awaited, _closed(id_))

    def _begin(self) -> None:
        self._changed.set()
        if self._looking is None or self._looking.done():
            self._looking = keep(asyncio.get_running_loop().create_task(self._look_while_awaited()))

    def _is_over(self, id_: int) -> None:
        """This process has just written down how it ended."""
        if (awaited := self._awaited.get(id_)) is not None:
            awaited.due = 0.0
            self._changed.set()

    async def _look_while_awaited(self) -> None:
        while self._awaited:
            self._changed.clear()
            now = _now()
            due = [id_ for id_, awaited in self._awaited.items() if awaited.due <= now + TOGETHER]
            if due:
                await self._look(due)
                continue
            wait = min(awaited.due for awaited in self._awaited.values()) - now
            timer = asyncio.get_running_loop().call_later(wait, self._changed.set)
            await self._changed.wait()
            timer.cancel()

    async def _look(self, ids: Sequence[int]) -> None:
        for id_ in ids:
            awaited = self._awaited[id_]
            now = _now()
            awaited.due = now + max(FIRST, min(self._longest, SHARE * (now - awaited.since)))
        try:
            for first in range(0, len(ids), BATCH):
                self._found(await self._ask(ids[first : first + BATCH]))
        except Exception as error:
            for id_ in ids:
                if (lost := self._awaited.get(id_)) is not None:
                    self._settle(id_, lost, error)

    async def _ask(self, ids: Sequence[int]) -> Rows:
        return await patiently("looking for results", lambda: self._store.ended_jobs(ids))

    def _found(self, rows: Rows) -> None:
        for row in rows:
            if (awaited := self._awaited.get(row["id"])) is not None:
                self._settle(row["id"], awaited, Ended(row["state"], row["type"], row["result"]))

    def _settle(self, id_: int, awaited: Awaited, end: Ended | Exception) -> None:
        self._forget(id_, awaited)
        if awaited.future.done():
            return
        if isinstance(end, Exception):
            awaited.future.set_exception(end)
        else:
            awaited.future.set_result(end)

    def _forget(self, id_: int, awaited: Awaited) -> None:
        if self._awaited.get(id_) is awaited:
            del self._awaited[id_]
            self._store.ends_awaited.pop(id_, None)
            self._changed.set()


def _closed(id_: int) -> NotOpen:
    return NotOpen(f"the app was closed while job {id_} was waited for; wait inside `async with app:`")


def _now() -> float:
    return asyncio.get_running_loop().time()
