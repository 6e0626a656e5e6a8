"""An app as a process: its event loop and its signals."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, NoReturn, TypeVar

from rxjobs.errors import InvalidOption, NotOpen, PipelineBroken, WornOut
from rxjobs.executors.child import is_child
from rxjobs.log_lines import logger
from rxjobs.runner import Running
from rxjobs.signals import taking
from rxjobs.stopping import left_behind

log = logger("rxjobs")

T = TypeVar("T")

BROKEN, WORN_OUT = 1, 75
"""Exit codes: a pipeline broke too often; as EX_TEMPFAIL says, the same in a new process would do."""
FAREWELL = 0.5
"""Seconds that a process with code in it that does not stop has for what is to be done at exit."""
ONE_WISH = 0.25
"""Seconds in which signals are one and the same wish: a supervisor passes on what was sent to its whole group."""


def serve(running: Callable[[], AbstractAsyncContextManager[Running]]) -> None:
    """Run until a signal or the end of every pipeline; exits with BROKEN when one broke too often, with WORN_OUT for a fresh start.

    Where code of a job does not stop, the process ends at once when all else is done: what follows on this call is never reached.
    """
    if is_child():
        raise InvalidOption(
            "app.run() was reached in a child of in_processes, which imports the program's main module once more; "
            "put it under: if __name__ == '__main__':"
        )
    if _is_in_a_loop():
        raise NotOpen("app.run() blocks, and an event loop runs in this thread already: there, use async with app.running(): …")
    code = run(_serve(running))
    if code:
        raise SystemExit(code)


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own, uvloop's where it is installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


async def _serve(running: Callable[[], AbstractAsyncContextManager[Running]]) -> int:
    code = 0
    try:
        await _until_stopped(running)
    except PipelineBroken as error:
        log.critical("stopped: %s", error)
        code = BROKEN
    except WornOut as error:
        log.critical("stopped, for a fresh start: %s", error)
        code = WORN_OUT
    if left_behind() or not await _end_the_rest():
        _exit_at_once(code)
    return code


async def _end_the_rest() -> bool:
    """Whether what jobs have started beside them, and left, ends too: the loop waits for it when it is closed."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    threads = asyncio.ensure_future(asyncio.get_running_loop().shutdown_default_executor())
    _, pending = await asyncio.wait({*tasks, threads}, timeout=FAREWELL)
    return not pending


async def _until_stopped(running: Callable[[], AbstractAsyncContextManager[Running]]) -> None:
    stopped = asyncio.Event()
    with _signals(stopped), _given_up_when(stopped) as opened:
        async with running() as ours:
            opened()
            ended, asked = asyncio.ensure_future(ours.wait()), asyncio.ensure_future(stopped.wait())
            await asyncio.wait([ended, asked], return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            if ended.done():
                ended.result()
            ended.cancel()


@contextmanager
def _given_up_when(stopped: asyncio.Event) -> Iterator[Callable[[], object]]:
    """Leave the body once `stopped` is set, until it calls what it is given: while it connects there is nothing to drain."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in one

    async def give_up() -> None:
        await stopped.wait()
        task.cancel()

    giving_up = asyncio.ensure_future(give_up())
    try:
        yield giving_up.cancel
    except asyncio.CancelledError:
        if not stopped.is_set():
            raise
        task.uncancel()
    finally:
        giving_up.cancel()


def _exit_at_once(code: int) -> NoReturn:
    """End this process whatever runs in it. What is registered with atexit gets a moment."""
    log.warning("code of jobs that does not stop is ended with this process")
    alarm = threading.Timer(FAREWELL, os._exit, (code,))
    alarm.daemon = True
    alarm.start()
    _flush()
    atexit._run_exitfuncs()
    _flush()
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # it may be closed, or anything that a program has put there
            stream.flush()


def _hangup() -> list[signal.Signals]:
    """SIGHUP, where it would end this process: not for whoever ignores it, by nohup, nor for a program that takes it."""
    number = getattr(signal, "SIGHUP", None)
    return [number] if number is not None and signal.getsignal(number) is signal.SIG_DFL else []


@contextmanager
def _signals(stopped: asyncio.Event) -> Iterator[None]:
    """Take the first SIGTERM, SIGINT or SIGHUP for a wish to stop, and the next for haste."""
    loop = asyncio.get_running_loop()

    first = 0.0

    def ask(number: signal.Signals) -> None:
        nonlocal first
        if stopped.is_set():
            if loop.time() - first > ONE_WISH:
                os._exit(128 + number)
            return
        first = loop.time()
        log.warning("%s: stopping; jobs in flight may end, a second signal exits at once", number.name)
        stopped.set()

    with taking((signal.SIGTERM, signal.SIGINT, *_hangup()), ask) as can:
        if not can:
            log.warning(
                "signals cannot be taken here (not the main thread, or Windows): a signal ends this process without draining"
            )
        yield
