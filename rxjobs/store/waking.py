"""How often those who wait for jobs are woken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from rxjobs.store.patience import PASSING
from rxjobs.store.store import Store

QUIET = 0.025
"""Seconds in which a queue is woken once by one app, and once more at their end if jobs came meanwhile.

A transaction that notifies takes a lock of the whole server when it commits: at a few thousand a second that lock is what
everybody waits for.
"""


class Waking:
    """Which inserts wake their queues: the first in a while. Those that follow are told of together, a moment later."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._quiet_until: dict[str, float] = {}
        self._owed: set[str] = set()
        self._telling: asyncio.Task[None] | None = None

    def may_notify(self, queues: Iterable[str]) -> bool:
        """Whether an insert into these queues, which is about to be made, is to wake them; if not, they are owed that."""
        now = asyncio.get_running_loop().time()
        if all(now < self._quiet_until.get(queue, 0.0) for queue in queues):
            return False
        self._quiet_until |= dict.fromkeys(queues, now + QUIET)
        return True

    def owe(self, queues: Iterable[str]) -> None:
        """Jobs of these queues were committed without waking anybody: have that done soon."""
        self._owed.update(queues)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._tell_later())

    async def finish(self) -> None:
        """Tell now of what is owed: nobody will later."""
        if self._telling is not None:
            self._telling.cancel()
        await self._tell()

    async def _tell_later(self) -> None:
        while self._owed:
            await asyncio.sleep(QUIET)
            await self._tell()

    async def _tell(self) -> None:
        owed, self._owed = self._owed, set()
        if not owed:
            return
        now = asyncio.get_running_loop().time()
        # those that are quiet no more are forgotten
        self._quiet_until = {queue: end for queue, end in self._quiet_until.items() if end > now} | dict.fromkeys(owed, now + QUIET)
        with suppress(*PASSING):  # a hint may be lost: the poll finds the jobs
            await self._store.notify_queues(sorted(owed))
