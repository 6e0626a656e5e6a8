"""How a call ended, as a value that any thread may carry: nothing that a job raises can harm what carries it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from rxjobs.job import Job
from rxjobs.outcome import Release
from rxjobs.stopping import leave_behind, until_ended


class Ran(NamedTuple):
    """What a call returned, or what it raised."""

    value: Any = None
    error: BaseException | None = None


def unless_recalled(job: Job, run: Callable[[], Ran]) -> Ran:
    """Run it now, if its job may still begin: it may have waited long for this thread."""
    reason = None if job.hold is None else job.hold.recalled
    return run() if reason is None else Ran(error=Release(reason=reason))


class Reply:
    """What a thread owes to a coroutine on an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Future[None] = self._loop.create_future()
        self._ran = Ran()

    def give(self, ran: Ran) -> None:
        """Hand it over, from any thread."""
        give_all([(self, ran)])

    async def taken(self, stop: Callable[[], bool] = lambda: True) -> Any:
        """Wait for it; returns what the call returned and raises what it raised. `stop` is as in until_ended."""
        await until_ended(self._arrived, stop)
        (value, error), self._ran = self._ran, Ran()
        if error is None:
            return value
        try:
            raise error
        finally:
            # its traceback holds this frame: a cycle would keep the job alive until the next garbage collection
            del error

    async def arrives_within(self, seconds: float) -> bool:
        """Wait for it no longer than that; whether it has come."""
        await asyncio.wait({self._arrived}, timeout=seconds)
        return self._arrived.done()

    def leave_behind(self) -> asyncio.Future[None]:
        """Wait for it no longer; gives what is done when it comes all the same."""
        leave_behind(self._arrived)
        return self._arrived

    def arrive(self) -> None:
        """Wake the one who waits; called on its loop."""
        if not self._arrived.done():
            self._arrived.set_result(None)

    def put(self, ran: Ran) -> asyncio.AbstractEventLoop:
        """Leave it here, without a word; gives the loop of the one who waits."""
        self._ran = ran
        return self._loop


def give_all(answers: Iterable[tuple[Reply, Ran]]) -> None:
    """Hand over several, from any thread: to wake a loop once for each takes longer than all the rest."""
    of_loop: dict[asyncio.AbstractEventLoop, list[Reply]] = {}
    for reply, ran in answers:
        of_loop.setdefault(reply.put(ran), []).append(reply)
    for loop, replies in of_loop.items():
        # a loop that was closed meanwhile does not want it
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_arrive, replies)


def _arrive(replies: list[Reply]) -> None:
    for reply in replies:
        reply.arrive()
