"""A call on some thread: in the context it was made in, and with an event loop of its own if it is a coroutine's."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from rxjobs.calls import Call
from rxjobs.decide import refuse_unrun
from rxjobs.executors.ran import Ran, unless_recalled
from rxjobs.failure import describe_here
from rxjobs.outcome import Outcome


class ThreadedCall:
    """One call. Interrupted, a coroutine is cancelled; a plain function cannot be stopped, but its job says that it should."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._start = call.start
        self._start.wait()
        self._context = contextvars.copy_context()
        self._interrupted = False
        self._cancel: Callable[[], object] | None = None

    def run(self) -> Ran:
        """Run it here and now."""
        return unless_recalled(self._call.job, self._begin)

    def interrupt(self) -> bool:
        """Ask it to stop, from any thread; whether it can be asked."""
        self._interrupted = True
        if self._call.job.hold is not None:
            self._call.job.hold.cancelled = True
        cancel = self._cancel
        if cancel is None:
            return False
        # its loop may have been closed since
        with suppress(RuntimeError):
            cancel()
        return True

    def _begin(self) -> Ran:
        self._start.begin()
        return self._context.run(self._run)

    def _run(self) -> Ran:
        try:
            value = self._call.invoke()
            if not inspect.isawaitable(value):
                return Ran(refuse_unrun(value))
            with asyncio.Runner() as runner:
                return runner.run(self._settle(value))
        except BaseException as error:  # whatever a job raises is its own failure
            return _failed(error)

    async def _settle(self, awaitable: Awaitable[Any]) -> Ran:
        task = asyncio.current_task()
        if task is not None:
            self._cancel = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
            if self._interrupted:
                task.cancel()
        try:
            return Ran(refuse_unrun(await awaitable))
        except BaseException as error:  # the same; a task that raised SystemExit would stop its loop
            return _failed(error)
        finally:
            self._cancel = None


def _failed(error: BaseException) -> Ran:
    if not isinstance(error, Outcome):
        describe_here(error)
    return Ran(error=error)
