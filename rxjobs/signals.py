"""Signals that a program answers to on its event loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def taking(numbers: Iterable[signal.Signals], then: Callable[[signal.Signals], object]) -> Iterator[bool]:
    """Have the running loop call this at these signals; gives whether it can: not on Windows, nor outside of the main thread."""
    loop, taken, can = asyncio.get_running_loop(), list[signal.Signals](), True
    try:
        for number in numbers:
            loop.add_signal_handler(number, then, number)
            taken.append(number)
    except (NotImplementedError, ValueError, RuntimeError):
        can = False
    try:
        yield can
    finally:
        for number in taken:
            loop.remove_signal_handler(number)


def stopped_by_sigterm() -> AbstractContextManager[bool]:
    """Let SIGTERM end the running task as SIGINT does, in order, so that it leaves neither a schema nor a process behind."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - called from a coroutine
    return taking([signal.SIGTERM], lambda _: task.cancel())
