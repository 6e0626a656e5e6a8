"""Functions that end in every way there is. They are imported by other processes, too."""

from __future__ import annotations

import asyncio
import threading
import time
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


def returns_nothing() -> None: ...


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


class Own(rj.Outcome):
    """An outcome that says nothing of what to do."""


def returns_own() -> rj.Outcome:
    return Own()


def raises_bare_outcome() -> None:
    raise rj.Outcome
