"""How often those who wait for jobs are woken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress

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

    def inserting(self, queues: Collection[str], count: int) -> Inserting:
        """Around an insert of so many jobs into these queues: whether it is to wake them. If not, they are owed that."""
        return Inserting(self, queues, count)

    def begin(self, queues: Collection[str], now: float) -> bool:
        """An insert begins: whether it is to wake these queues."""
        wakes = not self._are_quiet(queues, now)
        if wakes:
            for queue in queues:
                self._woken_at[queue] = now
        self._on_their_way += 1
        return wakes

    def pay(self, queues: Collection[str]) -> set[str]:
        """These queues are about to be woken: gives which of them were owed that."""
        paid = self._owed.intersection(queues)
        self._owed -= paid
        return paid

    def end(self, owed: Collection[str], began: float, count: int) -> None:
        """An insert is committed, and these queues are owed that they are told of it."""
        self._on_their_way -= 1
        if owed:
            self._owe(owed)
        self._inserted_at = _now()
        # many jobs take their time for themselves, and not for the lock
        self._took = self._inserted_at - began if count == 1 else 0.0

    def fail(self, owed: Collection[str]) -> None:
        """An insert has failed; it may have been committed all the same."""
        self._on_their_way -= 1
        self._owe(owed)

    async def finish(self) -> None:
        """Tell now of what is owed: nobody will later."""
        if self._telling is not None:
            self._telling.cancel()
        await self._tell()

    def _are_quiet(self, queues: Iterable[str], now: float) -> bool:
        makes_no_pause = self._on_their_way or now - self._inserted_at < self._took
        quiet = max(QUIET, min(LONGEST_QUIET, SHARE * self._took)) if makes_no_pause else QUIET
        # a loop: `all` of a generator takes twice the time, for every lone job
        for queue in queues:  # noqa: SIM110
            if now >= self._woken_at.get(queue, now - quiet) + quiet:
                return False
        return True

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


class Inserting:
    """One insert, from before it begins until it has ended: what `with` gives says whether it is to wake its queues."""

    __slots__ = ("_began", "_count", "_owed", "_queues", "_unpaid", "_waking")

    def __init__(self, waking: Waking, queues: Collection[str], count: int) -> None:
        self._waking = waking
        self._queues = queues
        self._count = count
        self._owed: Collection[str] = ()
        self._unpaid: Collection[str] = queues
        """What is owed once it has succeeded, and where it fails."""

    def __enter__(self) -> bool:
        self._began = _now()
        if self._waking.begin(self._queues, self._began):
            self._unpaid = self._waking.pay(self._queues)
            return True
        self._owed = self._queues
        return False

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._waking.end(self._owed, self._began, self._count)
        else:
            self._waking.fail(self._unpaid)


def _now() -> float:
    return asyncio.get_running_loop().time()
