"""An event loop on virtual time: an hour of sleeping is over at once, and always in the same order."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import selectors
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 10.0
"""Real seconds to wait for a thread, the only thing that a virtual clock cannot hurry."""


class Stuck(AssertionError):
    """Nothing runs and nothing is scheduled, so that what is waited for can never come."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock starts at 0 and jumps to the next timer whenever there is nothing else to do.

    Work in the loop's own thread pool (`asyncio.to_thread`) takes no virtual time: the clock stands still meanwhile. A loop
    in which nothing is left to do raises Stuck where a real one would hang. What is due at the same time comes in the order in
    which it was asked for.
    """

    def __init__(self) -> None:
        self._virtual_now = 0.0
        self._in_threads = 0
        self._places = itertools.count()
        super().__init__(_Jumping(self))
        # what asyncio adds to see that a timer is due must not be lost in the rounding of a late hour
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual_now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        timer.place = next(self._places)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._back_from_thread)
        return future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        self._in_threads += 1
        await super().shutdown_default_executor(*args, **kwargs)
        self._in_threads -= 1

    def pass_time(self, seconds: float | None) -> None:
        """Let the clock jump; None where there is no timer to jump to."""
        if seconds is None:
            waiting = "\n".join(f"    {task.get_coro()!r}" for task in asyncio.all_tasks(self))
            raise Stuck(
                f"at {self._virtual_now:g} virtual seconds nothing runs and nothing is scheduled, these still wait:\n{waiting}"
            )
        self._virtual_now += seconds

    @property
    def waits_for_threads(self) -> bool:
        """Whether work of this loop is in a thread."""
        return self._in_threads > 0

    def _back_from_thread(self, _: asyncio.Future[Any]) -> None:
        self._in_threads -= 1


def virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on virtual time, from code without an event loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


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
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self._loop.waits_for_threads or timeout is None:
            # without a timer, only a thread that the loop does not know of can still bring something
            ready = self._real.select(PATIENCE if self._loop.waits_for_threads else 0.2)
            if ready:
                return ready
        self._loop.pass_time(timeout)
        return []

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
