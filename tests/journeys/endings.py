"""Functions that end in every way there is. They are imported by other processes, too."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from inspect import signature
from types import FunctionType
from typing import Any

import rxjobs as rj


class TwoArguments(Exception):
    """Cannot be rebuilt from what pickle keeps of it."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Unpicklable(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()

    def __reduce__(self) -> Any:
        raise TypeError("not this one")


class Base(BaseException):
    pass


class Endless(Exception):
    """To print it takes for ever."""

    def __str__(self) -> str:
        while True:
            time.sleep(0.01)


class Unnameable(Exception):
    __module__ = "\x00"
    __qualname__ = "\ud800" * 1000


def good() -> None: ...


def value_error() -> None:
    raise ValueError("bad")


def two_arguments() -> None:
    raise TwoArguments(1, 2)


def silent() -> None:
    raise Silent


def unpicklable() -> None:
    raise Unpicklable("holds a lock")


def base_exception() -> None:
    raise Base("not an Exception")


def system_exit() -> None:
    raise SystemExit(3)


def keyboard_interrupt() -> None:
    raise KeyboardInterrupt


def generator_exit() -> None:
    raise GeneratorExit


def cancelled() -> None:
    raise asyncio.CancelledError("by itself")


def memory_error() -> None:
    raise MemoryError("all of it")


def group() -> None:
    raise ExceptionGroup("two", [ValueError(1), KeyError(2)])


def nul() -> None:
    raise ValueError("a\x00b\ud800")


def recursion() -> None:
    recursion()


def unnameable() -> None:
    raise Unnameable("without a name")


def huge() -> None:
    raise ValueError("x" * 50_000_000 + "the end")


def chain() -> None:
    error: BaseException = ValueError("the first")
    for n in range(10_000):
        error = _from(ValueError(n), error)
    raise RuntimeError("the last") from error


def _from(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def endless() -> None:
    raise Endless


def returns_nothing() -> None: ...


def returns_a_lambda() -> object:
    return lambda: None


def returns_an_open_file() -> object:
    return sys.__stderr__


def returns_a_bad_text() -> str:
    return "a\x00b\ud800"


def returns_a_value() -> dict[str, int]:
    return {"n": 1}


def returns_what_json_lacks() -> object:
    return {1, 2}


def returns_complete() -> rj.Outcome:
    return rj.Complete("done")


def returns_snooze() -> rj.Outcome:
    return rj.Snooze(60)


def raises_snooze() -> None:
    raise rj.Snooze(60)


def returns_cancel() -> rj.Outcome:
    return rj.Cancel("unwanted")


def raises_cancel() -> None:
    raise rj.Cancel("unwanted")


def returns_discard() -> rj.Outcome:
    return rj.Discard("hopeless")


def raises_discard() -> None:
    raise rj.Discard("hopeless")


def returns_retry() -> rj.Outcome:
    return rj.Retry(60)


def raises_retry() -> None:
    raise rj.Retry


def returns_release() -> rj.Outcome:
    return rj.Release(60)


def returns_a_generator() -> Any:
    return (n for n in range(3))


async def returns_an_async_generator() -> Any:
    async def numbers() -> Any:
        yield 1

    return numbers()


async def returns_a_coroutine() -> Any:
    return asyncio.sleep(0)


class Promise:
    """Something that can be awaited, and is no coroutine."""

    def __await__(self) -> Any:
        yield from asyncio.sleep(0).__await__()
        return "kept"


async def returns_an_awaitable_object() -> Any:
    return Promise()


def returns_an_awaitable_object_plainly() -> Any:
    return Promise()


def returns_a_coroutine_plainly() -> Any:
    return asyncio.sleep(0, "slept")


async def runs_a_loop_in_the_loop() -> None:
    sleeping = asyncio.sleep(0)
    try:
        asyncio.run(sleeping)
    finally:
        sleeping.close()


def runs_a_loop() -> None:
    asyncio.run(asyncio.sleep(0))


async def sleep_on_loop(seconds: float) -> None:
    await asyncio.sleep(seconds)


def sleep_in_thread(seconds: float) -> None:
    time.sleep(seconds)


def exits() -> None:
    os._exit(1)


def crashes() -> None:
    ctypes.string_at(0)


def kills_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def note(path: str, seconds: float) -> None:
    with open(path, "a") as notes:
        notes.write("begun\n")
        notes.flush()
        time.sleep(seconds)
        notes.write("ended\n")


class Own(rj.Outcome):
    """An outcome that says nothing of what to do."""


def returns_own() -> rj.Outcome:
    return Own()


def raises_bare_outcome() -> None:
    raise rj.Outcome


def _soon(function: Callable[[], Any]) -> Callable[[], Any]:
    async def soon() -> Any:
        await asyncio.sleep(0)
        return function()

    soon.__name__ = soon.__qualname__ = f"{function.__name__}_soon"
    return soon


def soon(name: str) -> str:
    """The name of the coroutine function that ends as the function of this name does."""
    made = _soon(globals()[name])
    return globals().setdefault(made.__name__, made).__name__


# another process imports them by name
for name in [name for name, value in globals().items() if isinstance(value, FunctionType) and value.__module__ == __name__]:
    if not name.startswith("_") and name != "soon" and not signature(globals()[name]).parameters:
        soon(name)
