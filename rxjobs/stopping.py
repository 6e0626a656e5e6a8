"""Code that is asked to stop: waited for, limited in time, or left behind where it does not."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from types import CoroutineType, coroutine
from typing import Any, TypeVar
from weakref import WeakSet

from rxjobs.calls import Start, starting
from rxjobs.log_lines import logger

log = logger("rxjobs")

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

    def begin(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], context: Context | None = None) -> asyncio.Task[T]:
        """Start a task at once: one that never waits is done before this returns. Any other is to be held until it is."""
        return asyncio.Task(work, loop=loop, context=context, eager_start=True)
else:

    def begin(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], context: Context | None = None) -> asyncio.Task[T]:
        """Start a task, which is to be held until it is done."""
        return loop.create_task(work, context=context)


def spawn(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], context: Context | None = None) -> asyncio.Task[T]:
    """Start a task, at once where Python can, and hold it until it is done."""
    task = begin(loop, work, context)
    return task if task.done() else keep(task)


def keep(task: asyncio.Task[T]) -> asyncio.Task[T]:
    """Hold a task until it is done: asyncio itself holds tasks weakly."""
    _alive.add(task)
    task.add_done_callback(_alive.discard)
    return task


_alive: set[asyncio.Task[Any]] = set()


def has_begun(task: asyncio.Task[Any]) -> bool:
    """Whether any code of a task has run: code that is cancelled before never gets to know of it."""
    work = task.get_coro()
    return not inspect.iscoroutine(work) or inspect.getcoroutinestate(work) != inspect.CORO_CREATED


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
            return await in_time(call(argument, start), seconds, lambda: name, start)
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


@coroutine
def in_time(awaitable: Awaitable[T], seconds: float, late: Callable[[], str], start: Start | None = None) -> Generator[Any, Any, T]:
    """Await something for so many seconds, from its `start` on where that is told of.

    Once they are over `late` is called, which says what it is that took so long, and the code is cancelled; raises TookTooLong.
    What does not end within a moment then is left behind; what ends with a result all the same has one.
    """
    # it is run here step by step, which is all that awaiting it is: a task of its own would cost as much as all the rest of a small
    # job, and a timer half of that, which what never waits does not need
    work = awaitable if isinstance(awaitable, CoroutineType) else _awaited(awaitable)
    loop = asyncio.get_running_loop()
    began = loop.time()
    limit: _Limit | None = None
    error: BaseException | None = None
    try:
        while True:
            try:
                awaited = work.send(None) if error is None else work.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            if limit is None:
                limit = _Limit(loop, began, seconds, late, start)
            error = yield from limit.wait(awaited)
            if error is None and limit.patience_is_over:
                leave_behind(keep(loop.create_task(_go_on(work, awaited))))
                log.warning(
                    "%s took longer than %g s, was cancelled and does not stop; nobody waits for it any more", limit.name, seconds
                )
                raise TookTooLong(limit.name, seconds, runs_on=True)
    except asyncio.CancelledError as cancelled:
        if limit is None or not limit.is_over:
            raise
        raise TookTooLong(limit.name, seconds, runs_on=cancelled.args == (RUNS_ON,)) from None
    finally:
        error = None  # its traceback holds this frame
        if limit is not None:
            limit.end()


class _Limit:
    """The time that a coroutine has, which is run by the task that made this."""

    __slots__ = ("_late", "_loop", "_patient_until", "_seconds", "_start", "_task", "_timer", "is_over", "name")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, began: float, seconds: float, late: Callable[[], str], start: Start | None
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._late = late
        self._start = start
        self._task = asyncio.current_task()
        self._timer = loop.call_at(began + seconds, self._expire)
        self._patient_until = float("inf")
        self.is_over = False
        """Whether the coroutine was cancelled because its time is over."""
        self.name = ""
        """What took so long, once it has."""

    @property
    def patience_is_over(self) -> bool:
        """Whether it has had its moment to stop in, too."""
        return self.is_over and self._loop.time() >= self._patient_until

    def wait(self, awaited: Any) -> Generator[Any, Any, BaseException | None]:
        """Wait for what the coroutine awaits; gives what is to be raised in it, if anything."""
        try:
            if awaited is None or (type(awaited) is asyncio.Future and not self.is_over):
                yield awaited
            else:
                yield from self._wait_apart(awaited).__await__()
        except BaseException as error:  # the coroutine gets it, and may raise it
            return error
        return None

    async def _wait_apart(self, awaited: asyncio.Future[Any]) -> None:
        """Wait for what may not heed a cancellation, such as a task, or not in time: it is passed on as a task does it."""
        while not awaited.done() and not self.patience_is_over:
            try:
                await _done(awaited, self._patient_until if self.is_over else None)
            except asyncio.CancelledError as error:
                is_told = self.is_over and error.args == (STOP,)  # asked to stop, what was cancelled already is not cancelled again
                if not is_told and not awaited.cancel(*error.args):
                    raise

    def end(self) -> None:
        """The coroutine has ended, or nobody waits for it."""
        self._timer.cancel()
        if self.is_over and self._task is not None:
            self._task.uncancel()

    def _expire(self) -> None:
        left = 0.0 if self._start is None else self._start.left(self._seconds)
        if left > 0:
            self._timer = self._loop.call_later(left, self._expire)
            return
        self.is_over = True
        self._patient_until = self._loop.time() + PATIENCE
        self.name = self._late()
        if self._task is not None:
            self._task.cancel()


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def _go_on(work: Coroutine[Any, Any, Any], awaited: asyncio.Future[Any] | None) -> None:
    """The rest of a coroutine that another task has begun to run, and has left where it awaits something."""
    while awaited is not None and not awaited.done():
        try:
            await _done(awaited)
        except asyncio.CancelledError as error:
            awaited.cancel(*error.args)
    await _rest(work)


@coroutine
def _rest(work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, None]:
    """Await a coroutine that has begun: `await` itself takes only one that has not."""
    yield from work.__await__()


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
    # code that is closed with its loop has none to ask for a task
    task = asyncio.current_task() if isinstance(error, asyncio.CancelledError) else None
    return task is not None and task.cancelling() > 0


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
