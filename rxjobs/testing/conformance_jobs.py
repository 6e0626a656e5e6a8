"""Functions that the laws for executors are tried with: at the top level of a module, so that other processes find them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NoReturn

from rxjobs.job import Job, current_job
from rxjobs.outcome import Cancel, Complete, Discard, Outcome, Release, Retry, Snooze


class NoException(BaseException):
    """What `except Exception` does not catch."""


class TwoArguments(Exception):
    """An exception that cannot be made of its message, as unpickling would."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class Unprintable(Exception):
    """An exception whose text raises."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Unpicklable(Exception):
    """An exception that cannot be pickled."""

    def __reduce__(self) -> NoReturn:
        raise RuntimeError("no pickle")


FAILURES: Mapping[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("wrong"),
    "MemoryError": MemoryError,
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "asyncio.exceptions.CancelledError": asyncio.CancelledError,
    f"{__name__}.NoException": lambda: NoException("not caught"),
    f"{__name__}.TwoArguments": lambda: TwoArguments(1, 2),
    f"{__name__}.Unprintable": Unprintable,
    f"{__name__}.Unpicklable": lambda: Unpicklable("kept"),
}
"""By the name that the failure must have."""

OUTCOMES: Mapping[str, Outcome] = {
    "complete": Complete({"rows": 3}),
    "retry": Retry(5, "later"),
    "snooze": Snooze(60, "not yet"),
    "cancel": Cancel("not wanted"),
    "discard": Discard("cannot be done"),
    "release": Release(1.5, "elsewhere"),
}


def add(a: int, b: int = 0) -> int:
    return a + b


async def add_soon(a: int, b: int = 0) -> int:
    await asyncio.sleep(0)
    return a + b


def promise(a: int, b: int = 0) -> Awaitable[int]:
    """A plain function that returns an awaitable."""
    return add_soon(a, b)


def next_day(day: date) -> str:
    return (day + timedelta(days=1)).isoformat()


def identify(job: Job) -> list[Any]:
    """A stage's function: it is given the job."""
    return [job.id, dict(job.args), dict(job.assigns), current_job().id]


def fail(name: str) -> NoReturn:
    raise FAILURES[name]()


async def fail_soon(name: str) -> NoReturn:
    await asyncio.sleep(0)
    raise FAILURES[name]()


def stop_iteration() -> NoReturn:
    raise StopIteration


def end_with(name: str) -> Outcome:
    return OUTCOMES[name]


async def raise_outcome(name: str) -> NoReturn:
    raise OUTCOMES[name]


def count(n: int) -> Iterator[int]:
    """A generator, which a job may not be."""
    yield from range(n)


async def count_soon(n: int) -> AsyncIterator[int]:
    """The same, asynchronous."""
    for number in range(n):
        yield number


async def who(seconds: float) -> list[int]:
    """The job's id, before and after a pause in which others run."""
    before = current_job().id
    await asyncio.sleep(seconds)
    return [before, current_job().id]


def span(seconds: float) -> list[float]:
    """When it began and ended, on the clock that all processes share."""
    began = time.monotonic()
    time.sleep(seconds)
    return [began, time.monotonic()]


async def begin_and_sleep(mark: str, seconds: float) -> None:
    """Tell that it runs by making a file, then do not end for a while."""
    _begin(mark)
    await asyncio.sleep(seconds)


def begin_and_block(mark: str, seconds: float) -> None:
    """The same, for a plain function."""
    _begin(mark)
    threading.Event().wait(seconds)


def _begin(mark: str) -> None:
    Path(mark).touch()
