"""`rxjobs run --processes N`: one supervisor that runs no job, and N processes of the same command that do.

The supervisor and each of its processes hold the two ends of a socket. A process sends a byte once it runs, and drains when
the supervisor's end is closed: a supervisor that is killed leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from asyncio.subprocess import DEVNULL, Process, create_subprocess_exec
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

log = logging.getLogger("rxjobs.processes")

BROKEN, MISTAKE, WORN_OUT = 1, 2, 75
BREAKS, BREAK_WINDOW = 3, 60.0
"""A process that broke so often within so many seconds is not started again."""
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
HASTE = 2.0
"""Seconds that processes have to obey a second signal."""


def supervise(arguments: Sequence[str], count: int) -> int:
    """Run `rxjobs` with these arguments in so many processes until they end; gives the exit code."""
    return asyncio.run(Supervisor(arguments, count).run())


class Tether:
    """A process's end of the socket to its supervisor."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        threading.Thread(target=self._drain_when_cut, name="tether", daemon=True).start()

    def tell_running(self) -> None:
        """Tell the supervisor that this process has got so far."""
        with suppress(OSError):
            self._socket.send(b"1")

    def _drain_when_cut(self) -> None:
        with suppress(OSError):
            self._socket.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)


class Supervisor:
    """Keeps processes running. A signal is passed on to all of them."""

    def __init__(self, arguments: Sequence[str], count: int) -> None:
        # -P: a file in the current folder must not stand in for a module of Python's own
        self._command = [sys.executable, "-P", "-m", "rxjobs", *arguments]
        self._count = count
        self._processes: set[Process] = set()
        self._stopping = asyncio.Event()
        self._proven = asyncio.Event()
        self._hasty: int | None = None

    async def run(self) -> int:
        """Run until every process has ended in order, or one of them cannot be helped."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._take, number)
        codes = await asyncio.gather(*(self._keep_one(place) for place in range(self._count)))
        return max(codes) if self._hasty is None else 128 + self._hasty

    async def _keep_one(self, place: int) -> int:
        """Run one process after another until one ends in order; gives the last one's exit code."""
        if place > 0:
            # so that a mistake is told once: the first shows whether the command is right
            await self._until(self._proven, None)
        loop = asyncio.get_running_loop()
        breaks: deque[float] = deque(maxlen=BREAKS)
        delay = FIRST_DELAY
        while not self._stopping.is_set():
            began = loop.time()
            code = await self._run_one()
            now = loop.time()
            if self._stopping.is_set():
                # a signal that comes before a process has taken it kills it, and there was nothing to drain
                return 0 if code in (0, WORN_OUT, -signal.SIGTERM, -signal.SIGINT) else BROKEN
            if code == BROKEN:
                breaks.append(now)
            is_hopeless = len(breaks) == BREAKS and breaks[0] > now - BREAK_WINDOW
            if code in (0, MISTAKE) or is_hopeless:
                if code == BROKEN:
                    log.critical(
                        "a process ended with %s %d times within %g s, and is not started again",
                        _told(code),
                        BREAKS,
                        BREAK_WINDOW,
                    )
                if code:
                    self._stop(signal.SIGTERM)
                return code
            if code == WORN_OUT:
                log.warning("a process ended for a fresh start, and is started again")
                continue
            delay = FIRST_DELAY if now - began > BREAK_WINDOW else delay
            log.error("a process ended with %s, and is started again in %.1f s", _told(code), delay)
            await self._until(self._stopping, delay)
            delay = min(LONGEST_DELAY, 2 * delay)
        return 0

    async def _run_one(self) -> int:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with ours:
            with theirs:
                # a group of its own: Ctrl-C in a terminal reaches the supervisor alone, which passes it on
                process = await create_subprocess_exec(
                    *self._command, f"--supervisor-fd={theirs.fileno()}",
                    stdin=DEVNULL, pass_fds=[theirs.fileno()], process_group=0,
                )  # fmt: skip
            self._processes.add(process)
            if self._stopping.is_set():
                process.send_signal(signal.SIGTERM)
            listening = asyncio.ensure_future(self._listen(ours))
            code = await process.wait()
            self._processes.discard(process)
            listening.cancel()
            await asyncio.wait([listening])
        return code

    async def _listen(self, ours: socket.socket) -> None:
        with suppress(OSError):
            if await asyncio.get_running_loop().sock_recv(ours, 1):
                self._proven.set()

    def _take(self, number: int) -> None:
        if self._stopping.is_set():
            self._hasty = number
            asyncio.get_running_loop().call_later(HASTE, self._send, signal.SIGKILL)
        self._stop(number)

    def _stop(self, number: int) -> None:
        self._stopping.set()
        self._send(number)

    def _send(self, number: int) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.send_signal(number)

    async def _until(self, event: asyncio.Event, seconds: float | None) -> None:
        """Wait for the event, the wish to stop, or so long."""
        waiting = [asyncio.ensure_future(one.wait()) for one in {event, self._stopping}]
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()


def _told(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
