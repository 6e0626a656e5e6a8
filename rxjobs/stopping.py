"""Code that is asked to stop: waited for, limited in time, or left behind where it does not."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from rxjobs.call import Start, starting

log = logging.getLogger("rxjobs")

PATIENCE = 1.0
"""Seconds in which what was cancelled is to have ended. What has not is left behind: nobody waits for it any more."""

STOP = "rxjobs: stop"
"""The message of a cancellation that asks code to stop and waits until it has, however long: what still runs is given to nobody
else. Any other, such as a timeout's, does not wait for what cannot be stopped."""
RUNS_ON = "rxjobs: runs on"
"""The message of the CancelledError of code that was cancelled and cannot be stopped."""

A = TypeVar("A")
T = TypeVar("T")


if sys.version_info >= (3, 12):

    def spawn(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], context: Context | None = None) -> asyncio.Task[T]:
        """Start a task at once: one that never waits is done before this returns."""
        task = asyncio.Task(work, loop=loop, context=context, eager_start=True)
        return task if task.done() else keep(task)
else:

    def spawn(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], context: Context | None = None) -> asyncio.Task[T]:
        """Start a task."""
        return keep(loop.create_task(work, context=context))


def keep(task: asyncio.Task[T]) -> asyncio.Task[T]:
    """Hold a task until it is done: asyncio itself holds tasks weakly."""
    _alive.add(task)
    task.add_done_callback(_alive.discard)
    return task


_alive: set[asyncio.Task[Any]] = set()


def called(function: Callable[[A], Any], seconds: float | None) -> Callable[[A], Coroutine[Any, Any, Any]]:
    """A user's function as a coroutine function: a plain one runs in a thread. Raises TimeoutError after so many seconds."""
    is_coroutine = inspect.iscoroutinefunction(function)

    async def call(argument: A, start: Start | None = None) -> Any:
        result = await (function(argument) if is_coroutine else _in_thread(function, argument, start))
        # a plain function may have called a coroutine function
        return await result if inspect.isawaitable(result) else result

    async def call_in_time(argument: A, seconds: float) -> Any:
        start = Start(getattr(argument, "id", 0))
        token = starting.set(start)
        try:
            return await in_time(call(argument, start), seconds, name, start=start)
        except TookTooLong as error:
            raise TimeoutError(str(error)) from None
        finally:
            starting.reset(token)

    if seconds is None:
        return call
    name = getattr(function, "__qualname__", repr(function))
    return lambda argument: call_in_time(argument, seconds)


class TookTooLong(Exception):
    """Something was cancelled because it took too long; `runs_on` where it does not stop."""

    def __init__(self, name: str, seconds: float, *, runs_on: bool) -> None:
        super().__init__(f"{name} took longer than {seconds:g} s{', and does not stop' if runs_on else ''}")
        self.runs_on = runs_on


async def in_time(
    work: Coroutine[Any, Any, T],
    seconds: float,
    name: str,
    late: Callable[[], object] = lambda: None,
    start: Start | None = None,
) -> T:
    """Await a coroutine for so many seconds, from its `start` on where that is told of.

    Once they are over `late` is called and the coroutine cancelled; raises TookTooLong.
    What does not end within a moment then is left behind; what ends with a result all the same has one.
    """
    task = spawn(asyncio.get_running_loop(), work)
    left = seconds
    while left > 0:
        await _wait(task, left, task.cancel)
        if task.done():
            return task.result()
        left = 0.0 if start is None else start.left(seconds)
    late()
    task.cancel()
    await _wait(task, PATIENCE)
    if not task.done():
        leave_behind(task)
        log.warning("%s took longer than %g s, was cancelled and does not stop; nobody waits for it any more", name, seconds)
        raise TookTooLong(name, seconds, runs_on=True)
    try:
        return task.result()
    except asyncio.CancelledError as error:
        raise TookTooLong(name, seconds, runs_on=error.args == (RUNS_ON,)) from None


async def _wait(task: asyncio.Task[Any], seconds: float, cancelled: Callable[..., object] = lambda *_: None) -> None:
    """Wait for a task, also while cancelled, which is told."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not task.done() and loop.time() < end:
        try:
            await _done(task, end)
        except asyncio.CancelledError as error:
            cancelled(*error.args)


async def until_ended(future: asyncio.Future[Any], stop: Callable[[], bool]) -> None:
    """Wait for code that no cancellation reaches. Asked to stop, `stop` passes that on, and the end is waited for unless it says
    that nothing has begun; cancelled in another way, this raises at once.
    """
    while not future.done():
        try:
            await _done(future)
        except asyncio.CancelledError as error:
            if error.args != (STOP,) or stop():
                raise


async def _done(future: asyncio.Future[Any], end: float | None = None) -> None:
    """Wait for a future, which a cancellation leaves alone, or an instant of the loop: asyncio.wait takes 30 µs for that."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    wake = partial(_wake, waiter)
    timer = None if end is None else loop.call_at(end, wake)
    future.add_done_callback(wake)
    try:
        await waiter
    finally:
        future.remove_done_callback(wake)
        if timer is not None:
            timer.cancel()


def _wake(waiter: asyncio.Future[None], *_: object) -> None:
    if not waiter.done():
        waiter.set_result(None)


def leave_behind(future: asyncio.Future[Any]) -> None:
    """Wait no longer for code that was asked to stop and has not. It is known until it ends, if it ever does."""
    _left_behind.add(future)
    future.add_done_callback(_see)


def left_behind() -> list[asyncio.Future[Any]]:
    """What was left behind on the running loop, and has not ended."""
    loop = asyncio.get_running_loop()
    return [future for future in tuple(_left_behind) if not future.done() and future.get_loop() is loop]


_left_behind: WeakSet[asyncio.Future[Any]] = WeakSet()


def is_wish_to_stop(error: BaseException) -> bool:
    """Whether somebody asked the running task to stop; else a CancelledError is what its code raised by itself."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


async def _in_thread(function: Callable[[A], T], argument: A, start: Start | None) -> T:
    has_begun = is_unwanted = False
    if start is not None:
        start.wait()

    def call() -> T:
        nonlocal has_begun
        has_begun = True
        if is_unwanted:
            raise asyncio.CancelledError
        if start is not None:
            start.begin()
        return _call(function, argument)

    def stop() -> bool:
        nonlocal is_unwanted
        is_unwanted = True
        return not has_begun

    running = asyncio.get_running_loop().run_in_executor(None, copy_context().run, call)
    try:
        await until_ended(running, stop)
    except asyncio.CancelledError:
        if stop():
            raise
        leave_behind(running)
        raise asyncio.CancelledError(RUNS_ON) from None
    return running.result()


def _see(future: asyncio.Future[Any]) -> None:
    """Take note of how something ended that nobody waits for: asyncio logs what nobody does."""
    if not future.cancelled():
        future.exception()


def _call(function: Callable[[A], T], argument: A) -> T:
    try:
        return function(argument)
    except (StopIteration, GeneratorExit) as error:
        # neither can be thrown into a coroutine: the one who waits would wait for ever, or be closed
        raise RuntimeError(f"the function raised {type(error).__name__}") from error
