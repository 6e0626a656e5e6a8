"""An app as a process: its event loop and its signals."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

from rxjobs.errors import InvalidOption, PipelineBroken
from rxjobs.executors.child import is_child
from rxjobs.runner import Running

log = logging.getLogger("rxjobs")

ONE_WISH = 0.25
"""Seconds in which signals are one and the same wish: a supervisor passes on what was sent to its whole group."""


def serve(running: Callable[[], AbstractAsyncContextManager[Running]]) -> None:
    """Run until a signal or the end of every pipeline; exits with code 1 when one broke too often."""
    if is_child():
        raise InvalidOption(
            "app.run() was reached in a child of in_processes, which imports the program's main module once more; "
            "put it under: if __name__ == '__main__':"
        )
    try:
        run(_until_stopped(running))
    except PipelineBroken as error:
        log.critical("stopped: %s", error)
        raise SystemExit(1) from error


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in an event loop of its own, uvloop's where it is installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)


async def _until_stopped(running: Callable[[], AbstractAsyncContextManager[Running]]) -> None:
    stopped = asyncio.Event()
    with _signals(stopped):
        async with running() as ours:
            ended, asked = asyncio.ensure_future(ours.wait()), asyncio.ensure_future(stopped.wait())
            await asyncio.wait([ended, asked], return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            if ended.done():
                ended.result()
            ended.cancel()


@contextmanager
def _signals(stopped: asyncio.Event) -> Iterator[None]:
    """Take the first SIGTERM or SIGINT for a wish to stop, and the next for haste."""
    loop = asyncio.get_running_loop()

    first = 0.0

    def ask(number: int) -> None:
        nonlocal first
        if stopped.is_set():
            if loop.time() - first > ONE_WISH:
                os._exit(128 + number)
            return
        first = loop.time()
        log.warning("%s: stopping; jobs in flight may end, a second signal exits at once", signal.Signals(number).name)
        stopped.set()

    taken = []
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ask, number)
            taken.append(number)
    except (NotImplementedError, ValueError, RuntimeError):
        log.warning("signals cannot be taken here (not the main thread, or Windows): a signal ends this process without draining")
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
