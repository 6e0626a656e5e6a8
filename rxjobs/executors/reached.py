"""Pools whose calls can be reached while they run: they tell that they have begun, what they say, and can be asked to stop."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from concurrent import futures
from functools import partial
from threading import Lock, RLock

from rxjobs.executors.ran import Ran

BEGUN = b""
"""What a call says first; whatever else it says is a report of its job."""

Heard = Callable[[bytes], object]
"""Is told what a call says, in any thread."""


class Sent(futures.Future[bytes]):
    """The answer to come of a call in such a pool: there once the call has ended. Cancelled, it never began, and never will."""

    def __init__(self, ask: Callable[[], object]) -> None:
        super().__init__()
        self._ask = ask
        self._asking = Lock()
        self.is_asked = False
        """Whether it was asked to stop."""

    def cancel(self) -> bool:
        """Ask it to stop, and not wait for it: whether it has begun is not known here. So this gives False."""
        with self._asking:
            is_first, self.is_asked = not self.is_asked, True
        if is_first and not self.done():
            self._ask()
        return False

    def withdraw(self) -> None:
        """It has not begun, and does not."""
        if super().cancel():
            self.set_running_or_notify_cancel()


class ReachedPool(futures.Executor):
    """A pool of other processes that can be reached into. `submit` serves others; jobs are sent."""

    @abstractmethod
    def send(self, request: bytes, name: str, heard: Heard) -> Sent:
        """Have `remote.answer` answer a request, under a name that people read."""


class Interruptible:
    """A call, where it runs, that other threads may ask to stop: a coroutine is cancelled, a plain function can look."""

    def __init__(self) -> None:
        self.is_asked = False
        self._cancel: Callable[[], object] | None = None
        self._lock = RLock()  # a signal's handler may ask in the middle of asking

    def interrupt(self) -> None:
        """Ask it to stop, from any thread."""
        with self._lock:
            self.is_asked = True
            if self._cancel is not None:
                self._cancel()

    def wait(self, work: Coroutine[object, object, Ran]) -> Ran:
        """Run a coroutine to its end."""
        with asyncio.Runner() as runner:
            return runner.run(self._follow(work))

    async def _follow(self, work: Coroutine[object, object, Ran]) -> Ran:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        with self._lock:
            self._cancel = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
            if self.is_asked:
                task.cancel()
        try:
            return await work
        finally:
            with self._lock:
                self._cancel = None
