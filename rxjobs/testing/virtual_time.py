"""An event loop on the virtual time of a TestScheduler: an hour of sleeping is over at once, and always in the same order."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import selectors
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from datetime import timedelta
from typing import Any, TypeVar

from reactivex import abc
from reactivex.scheduler import VirtualTimeScheduler
from reactivex.testing import TestScheduler

T = TypeVar("T")

PATIENCE = 10.0
"""Real seconds to wait for a thread, the only thing that a virtual clock cannot hurry."""
UNKNOWN_THREADS = 0.2
"""Real seconds in which a thread that the loop does not know of may still bring something."""


class Stuck(AssertionError):
    """Nothing runs and nothing is scheduled, so that what is waited for can never come."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of a reactivex TestScheduler, and jumps to what is due next whenever there is nothing to do.

    What coroutines sleep for and what is scheduled on the TestScheduler itself, such as its hot observables, is on one time. Due at
    the same time, what is scheduled on the TestScheduler comes first, then the loop's timers, each in the order asked for. Time
    stands still while anything of the loop can run.

    Work in the loop's own thread pool (`asyncio.to_thread`) takes no virtual time: the clock stands still meanwhile. A loop
    in which nothing is left to do raises Stuck where a real one would hang.
    """

    def __init__(self, scheduler: TestScheduler | None = None) -> None:
        self.scheduler = TestScheduler() if scheduler is None else scheduler
        """Whose clock this loop's time is, in seconds."""
        self._is_passing = False
        self._is_held = False
        self._in_threads = 0
        self._places = itertools.count()
        super().__init__(_Jumping(self))
        # what asyncio adds to see that a timer is due must not be lost in the rounding of a late hour
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """The scheduler's clock, in seconds."""
        return float(self.scheduler.to_seconds(self.scheduler.clock))

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._is_passing:
            self._hold_the_time()
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._is_passing:
            self._hold_the_time()
        return super().call_soon_threadsafe(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._is_passing:
            self._hold_the_time()
        timer = _Timer(when, callback, args, self, context)
        timer.place = next(self._places)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        if self._is_passing:
            self._hold_the_time()
        future = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._back_from_thread)
        return future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        self._in_threads += 1
        await super().shutdown_default_executor(*args, **kwargs)
        self._in_threads -= 1

    def pass_time(self, seconds: float | None) -> bool:
        """Let the scheduler do what it has to until a timer is due, in so many seconds, or the loop has something to do before.

        False where nothing is scheduled, here or there (None: no timer is).
        """
        scheduler = self.scheduler
        # it counts microseconds: a timer is not rung before it is due, and never at the time at which it was set
        alarm = None if seconds is None else scheduler.schedule_relative(_at_least(seconds), self._stand_still)
        self._is_passing, self._is_held = True, False
        try:
            # a TestScheduler's own would subscribe to something as well, at 200
            VirtualTimeScheduler.start(scheduler)
        finally:
            scheduler.stop()  # which it does not do by itself when what it runs raises
            self._is_passing = False
            if alarm is not None:
                alarm.dispose()
        return self._is_held

    def raise_stuck(self) -> None:
        """Raise Stuck, which says who waits."""
        waiting = "\n".join(f"    {task.get_coro()!r}" for task in asyncio.all_tasks(self))
        raise Stuck(f"at {self.time():g} virtual seconds nothing runs and nothing is scheduled, these still wait:\n{waiting}")

    def _hold_the_time(self) -> None:
        if not self._is_held:
            # once the scheduler has done all else that is due now
            self._is_held = True
            self.scheduler.schedule(self._stand_still)

    def _stand_still(self, scheduler: abc.SchedulerBase, state: Any = None) -> None:
        self._is_held = True
        self.scheduler.stop()

    @property
    def waits_for_threads(self) -> bool:
        """Whether work of this loop is in a thread."""
        return self._in_threads > 0

    def _back_from_thread(self, _: asyncio.Future[Any]) -> None:
        self._in_threads -= 1


def virtually(main: Coroutine[Any, Any, T], *, scheduler: TestScheduler | None = None) -> T:
    """Run a coroutine on virtual time, that of the TestScheduler where one is given, from code without an event loop."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(scheduler)) as runner:
        return runner.run(main)


def _at_least(seconds: float) -> timedelta:
    return timedelta(microseconds=max(1, math.ceil(seconds * 1e6 - 1e-3)))


class _Timer(asyncio.TimerHandle):
    """One of several that are due at the same time knows its place among them: asyncio's own come in any order."""

    __slots__ = ("place",)

    place: int

    def __lt__(self, other: Any) -> bool:
        return (self.when(), self.place) < (other.when(), other.place)


class _Jumping(selectors.BaseSelector):
    """A selector that never waits for time to pass."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if not ready and (timeout is None or timeout > 0):
            if self._loop.waits_for_threads:
                ready = self._real.select(PATIENCE)
            if not ready and not self._loop.pass_time(timeout):
                ready = self._real.select(UNKNOWN_THREADS)
                if not ready:
                    self._loop.raise_stuck()
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()
