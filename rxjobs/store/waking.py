"""How often those who wait for jobs are woken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from rxjobs.store.patience import PASSING

QUIET, LONGEST_QUIET = 0.025, 0.25
"""Seconds in which a queue is woken once by one app, and once more at their end if jobs came meanwhile: at least, and at most.

A transaction that notifies takes a lock of the whole server when it commits: at a few thousand a second that lock is what
everybody waits for.
"""
SHARE = 10
"""Who inserts one job after the other without a pause wakes with every tenth or so, however long an insert takes: many such
clients are what makes it take long."""


class Waking:
    """Which inserts wake their queues: the first in a while. Those that follow are told of together, a moment later, by `tell`."""

    def __init__(self, tell: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        self._tell_queues = tell
        self._woken_at: dict[str, float] = {}
        self._owed: set[str] = set()
        self._telling: asyncio.Task[None] | None = None
        self._on_their_way = 0
        self._inserted_at = 0.0
        self._took = 0.0

    @contextmanager
    def inserting(self, queues: Iterable[str], count: int) -> Iterator[bool]:
        """Around an insert of so many jobs into these queues: whether it is to wake them. If not, they are owed that."""
        began = _now()
        wakes = not self._are_quiet(queues, began)
        told = self._owed.intersection(queues) if wakes else set()
        if wakes:
            self._woken_at |= dict.fromkeys(queues, began)
            self._owed -= told
        self._on_their_way += 1
        try:
            yield wakes
        except BaseException:
            # it may have been committed all the same
            self._owe(told if wakes else queues)
            raise
        finally:
            self._on_their_way -= 1
        if not wakes:
            self._owe(queues)
        self._inserted_at = _now()
        # many jobs take their time for themselves, and not for the lock
        self._took = self._inserted_at - began if count == 1 else 0.0

    async def finish(self) -> None:
        """Tell now of what is owed: nobody will later."""
        if self._telling is not None:
            self._telling.cancel()
        await self._tell()

    def _are_quiet(self, queues: Iterable[str], now: float) -> bool:
        makes_no_pause = self._on_their_way or now - self._inserted_at < self._took
        quiet = max(QUIET, min(LONGEST_QUIET, SHARE * self._took)) if makes_no_pause else QUIET
        return all(now < self._woken_at.get(queue, now - quiet) + quiet for queue in queues)

    def _owe(self, queues: Iterable[str]) -> None:
        """Jobs of these queues were committed without waking anybody: have that done soon."""
        self._owed.update(queues)
        if self._owed and (self._telling is None or self._telling.done()):
            self._telling = asyncio.get_running_loop().create_task(self._tell_later())

    async def _tell_later(self) -> None:
        while self._owed:
            await asyncio.sleep(QUIET)
            if not self._are_quiet(self._owed, _now()):
                await self._tell()

    async def _tell(self) -> None:
        owed, self._owed = self._owed, set()
        if not owed:
            return
        now = _now()
        # those that are quiet no more are forgotten
        self._woken_at = {queue: at for queue, at in self._woken_at.items() if at > now - LONGEST_QUIET}
        self._woken_at |= dict.fromkeys(owed, now)
        with suppress(*PASSING):  # a hint may be lost: the poll finds the jobs
            await self._tell_queues(sorted(owed))


def _now() -> float:
    return asyncio.get_running_loop().time()
