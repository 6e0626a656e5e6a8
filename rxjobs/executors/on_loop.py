"""Run jobs on the event loop: what `async def` functions get by default."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any, TypeVar

from reactivex import abc, typing
from reactivex.scheduler.eventloop import AsyncIOScheduler, AsyncIOThreadSafeScheduler
from reactivex.scheduler.periodicscheduler import PeriodicScheduler

from rxjobs.calls import Call, invoke
from rxjobs.decide import refuse_unrun
from rxjobs.errors import NotOpen
from rxjobs.job import Job

S = TypeVar("S")


def on_loop() -> OnLoop:
    """An executor that awaits coroutines on the running event loop; a plain function is simply called there."""
    return OnLoop()


class OnLoop(PeriodicScheduler):
    """The event loop as an executor.

    As a scheduler it stays with the loop where it was made, or first used, until that is closed; other threads may
    schedule there then.
    """

    name = "loop"

    def __init__(self) -> None:
        super().__init__()
        # weakly, since an app made at import time outlives many loops
        self._home: weakref.ref[asyncio.AbstractEventLoop] | None = None
        self._find_home()

    async def run(self, call: Call) -> Any:
        """Await the function here; cancelled, its coroutine is."""
        if self._home is None or self._home() is not asyncio.get_running_loop():
            self._find_home()
        value = call.invoke()
        if inspect.isawaitable(value):
            value = await value
        return refuse_unrun(value)

    def bind(self, function: Callable[..., Any]) -> Callable[[Job], Awaitable[Any]]:
        """What gives the function's own coroutine for a job, to be awaited with none of ours around it."""

        def begin(job: Job) -> Awaitable[Any]:
            if self._home is None or self._home() is not asyncio.get_running_loop():
                self._find_home()
            value = invoke(function, job)
            return value if type(value) is CoroutineType else _awaited(value)

        return begin

    async def close(self) -> None:
        """Nothing was started."""

    def schedule(self, action: abc.ScheduledAction[S], state: S | None = None) -> abc.DisposableBase:
        """Have the action run on the loop."""
        return self._scheduler().schedule(action, state)

    def schedule_relative(
        self, duetime: typing.RelativeTime, action: abc.ScheduledAction[S], state: S | None = None
    ) -> abc.DisposableBase:
        """Have the action run on the loop after a while."""
        return self._scheduler().schedule_relative(duetime, action, state)

    def schedule_absolute(
        self, duetime: typing.AbsoluteTime, action: abc.ScheduledAction[S], state: S | None = None
    ) -> abc.DisposableBase:
        """Have the action run on the loop at an instant."""
        return self._scheduler().schedule_absolute(duetime, action, state)

    def _scheduler(self) -> AsyncIOScheduler:
        home = self._find_home()
        if home is None:
            raise NotOpen("on_loop() was asked to schedule something outside of an event loop; make it inside a coroutine")
        return AsyncIOScheduler(home) if home is _running_loop() else AsyncIOThreadSafeScheduler(home)

    def _find_home(self) -> asyncio.AbstractEventLoop | None:
        home = self._home() if self._home is not None else None
        if home is None or home.is_closed():
            home = _running_loop()
            self._home = weakref.ref(home) if home is not None else None
        return home


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
