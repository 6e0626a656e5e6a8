"""`rxjobs run --processes N`: one supervisor that runs no job, and N processes of the same command that do.

The supervisor and each of its processes hold the two ends of a socket. A process says how far it has come, and drains when the
supervisor's end is closed: a supervisor that is killed leaves nothing behind.

On SIGHUP it puts a new process in the place of each, one after another. A new one is an interpreter of its own and imports
whatever code is there by now; the old one goes on fetching until the new one does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from asyncio.subprocess import DEVNULL, Process, create_subprocess_exec
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from rxjobs.log_lines import logger

log = logger("rxjobs.processes")

BROKEN, MISTAKE, WORN_OUT = 1, 2, 75
BREAKS, BREAK_WINDOW = 3, 60.0
"""A process that broke so often within so many seconds is not started again."""
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
HASTE = 2.0
"""Seconds that processes have to obey a second signal."""
START_SECONDS = 120.0
"""Seconds in which a process that is to replace another stands. One that does not hangs, or breaks again and again."""
RUNS, STANDS = b"r", b"s"
"""What a process tells: it has joined and its first pipeline starts; its pipelines go on, and it can be counted on."""
STILL_DRAINS = 60.0
"""How often a process that was replaced and has not ended is told of."""


def supervise(arguments: Sequence[str], count: int) -> int:
    """Run `rxjobs` with these arguments in so many processes until they end; gives the exit code."""

    async def supervised() -> int:
        supervisor = Supervisor(arguments, count)
        take_signals(supervisor.take)
        return await supervisor.run()

    return asyncio.run(supervised())


def take_signals(take: Callable[[int], object]) -> None:
    """Hand over each signal that a supervisor knows."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, take, number)


class Tether:
    """A process's end of the socket to its supervisor."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        # what is sent to the whole group, or the whole service, is for the supervisor
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        threading.Thread(target=self._drain_when_cut, name="tether", daemon=True).start()

    def tell(self, what: bytes) -> None:
        """Tell the supervisor that this process has got so far."""
        with suppress(OSError):
            self._socket.send(what)

    def _drain_when_cut(self) -> None:
        with suppress(OSError):
            self._socket.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)


class Child:
    """A process, and how far it has come."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.began = asyncio.get_running_loop().time()
        self.runs, self.stands = asyncio.Event(), asyncio.Event()
        self.left = asyncio.Event()
        """Its place is another's, or it has ended."""
        self.ended = asyncio.Event()
        self.is_told_to_end = False

    @property
    def code(self) -> int:
        """Its exit code, once it has ended."""
        assert self.process.returncode is not None  # noqa: S101 - ended
        return self.process.returncode

    def end(self, number: int) -> None:
        """Tell it to end, once: it would take a second signal for haste."""
        if not self.is_told_to_end:
            self.send(number)

    def send(self, number: int) -> None:
        """Send a signal to it, if it is there."""
        self.is_told_to_end = True
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


class Place:
    """One of the processes that are to run, whichever it is."""

    def __init__(self) -> None:
        self.child: Child | None = None
        self.turn = asyncio.Lock()
        """Whoever has it may put a process here."""


class Supervisor:
    """Keeps processes running, and replaces them when it is asked to. A signal to end is passed on to all of them."""

    def __init__(self, arguments: Sequence[str], count: int, flags: Sequence[str] = ()) -> None:
        # -P: a file in the current folder must not stand in for a module of Python's own
        self._command = [sys.executable, "-P", *flags, "-m", "rxjobs", *arguments]
        self._folder = _folder()
        self._places = [Place() for _ in range(count)]
        self._children: set[Child] = set()
        self._stopping = asyncio.Event()
        self._proven = asyncio.Event()
        self._replacing = asyncio.Event()
        self._watching: set[asyncio.Task[None]] = set()
        self._signalled: int | None = None
        self._hasty: int | None = None

    async def run(self) -> int:
        """Run until every process has ended in order, or one of them cannot be helped; gives the exit code."""
        replacing = asyncio.ensure_future(self._replace_when_asked())
        codes = await asyncio.gather(*map(self._keep, self._places))
        self.stop(signal.SIGTERM)
        await asyncio.gather(replacing, *self._watching)
        return max(codes) if self._hasty is None else 128 + self._hasty

    def take(self, number: int) -> None:
        """Do what a signal asks for: the first SIGTERM or SIGINT to end, the next to hurry, SIGHUP to replace every process."""
        if number == signal.SIGHUP:
            self._replacing.set()
            return
        if self._signalled is None:
            self._signalled = number
            self.stop(number)
            return
        self._hasty = number
        asyncio.get_running_loop().call_later(HASTE, self._send, signal.SIGKILL)
        self._send(number)

    def stop(self, number: int) -> None:
        """Have every process end in order."""
        self._stopping.set()
        for child in self._children:
            child.end(number)

    async def _keep(self, place: Place) -> int:
        """Run one process after another until one ends in order; gives the last one's exit code."""
        if place is not self._places[0]:
            # so that a mistake is told once: the first shows whether the command is right
            await self._until(self._proven)
        loop = asyncio.get_running_loop()
        breaks: deque[float] = deque(maxlen=BREAKS)
        delay = FIRST_DELAY
        while not self._stopping.is_set():
            try:
                child = await self._run_one(place)
            except OSError as error:  # the system is short of something, or a deployment moves the folder
                log.error("a process cannot be started, which is tried again in %.1f s: %s", delay, error)
                await self._until(seconds=delay)
                delay = min(LONGEST_DELAY, 2 * delay)
                continue
            code, now = child.code, loop.time()
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
                    self.stop(signal.SIGTERM)
                return code
            if code == WORN_OUT:
                log.warning("a process ended for a fresh start, and is started again")
                continue
            delay = FIRST_DELAY if now - child.began > BREAK_WINDOW else delay
            log.error("a process ended with %s, and is started again in %.1f s", _told(code), delay)
            await self._until(seconds=delay)
            delay = min(LONGEST_DELAY, 2 * delay)
        return 0

    async def _run_one(self, place: Place) -> Child:
        """Run a process in this place, or whichever replaces it, until it has ended by itself."""
        async with place.turn:
            if place.child is None:
                place.child = await self._start()
        while True:
            child = place.child
            await child.left.wait()
            if place.child is child:
                place.child = None
                return child

    async def _replace_when_asked(self) -> None:
        while True:
            await self._until(self._replacing)
            if self._stopping.is_set():
                return
            # who asks while it is done means code that may have come too late for the first ones
            self._replacing.clear()
            await self._replace_all()

    async def _replace_all(self) -> None:
        count = len(self._places)
        log.warning("SIGHUP: new processes take the place of all %d, one by one", count)
        for done, place in enumerate(self._places):
            is_replaced = await self._replace(place)
            if self._stopping.is_set():
                return
            if not is_replaced:
                log.critical(
                    "a new process did not come to run: the old one goes on, and no more are replaced; replaced: %d of %d. "
                    "Mend it and send SIGHUP again: whatever is started meanwhile, for one that ends, has the new code too",
                    done,
                    count,
                )
                return
        log.warning("replaced: %d of %d", count, count)

    async def _replace(self, place: Place) -> bool:
        """Put a new process in this place, and then end the one that was there; whether the new one came to run."""
        async with place.turn:
            old = place.child
            if old is None:  # whatever starts here next starts with the code of now
                return True
            try:
                new = await self._start()
            except OSError as error:
                log.error("a process cannot be started: %s", error)
                return False
            if not await self._comes_to_stand(new):
                await self._see_off(new)
                return False
            if not old.ended.is_set():
                log.info("process %d takes the place of %d", new.process.pid, old.process.pid)
            elif old.code == 0:  # its pipelines came to their end, and need nobody in this place
                await self._see_off(new)
                return True
            place.child = new
            old.left.set()
        await self._drain(old)
        return True

    async def _comes_to_stand(self, child: Child) -> bool:
        await self._until(child.stands, child.ended, seconds=START_SECONDS)
        if child.ended.is_set() or self._stopping.is_set():
            return False
        if not child.stands.is_set():
            log.error("process %d does not run as it should after %g s, and is stopped", child.process.pid, START_SECONDS)
        return child.stands.is_set()

    async def _drain(self, child: Child) -> None:
        child.end(signal.SIGTERM)
        while not await _happens(child.ended, STILL_DRAINS):
            log.warning("process %d, which is replaced, still has jobs to end", child.process.pid)
        if child.code not in (0, WORN_OUT):
            log.error("process %d, which was replaced, ended with %s", child.process.pid, _told(child.code))

    async def _see_off(self, child: Child) -> None:
        """End a process that is not needed."""
        child.end(signal.SIGTERM)
        if not await _happens(child.ended, HASTE) and not child.runs.is_set():
            # it hangs where it does not even take a signal, and holds no job
            child.send(signal.SIGKILL)
        await child.ended.wait()

    async def _start(self) -> Child:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            with theirs:
                # a group of its own: Ctrl-C in a terminal reaches the supervisor alone, which passes it on
                process = await create_subprocess_exec(
                    *self._command, f"--supervisor-fd={theirs.fileno()}",
                    stdin=DEVNULL, pass_fds=[theirs.fileno()], process_group=0, cwd=self._folder,
                )  # fmt: skip
        except BaseException:
            ours.close()
            raise
        child = Child(process)
        self._children.add(child)
        if self._stopping.is_set():
            child.end(signal.SIGTERM)
        watching = asyncio.ensure_future(self._watch(child, ours))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        return child

    async def _watch(self, child: Child, ours: socket.socket) -> None:
        with ours:
            listening = asyncio.ensure_future(self._listen(child, ours))
            await child.process.wait()
            self._children.discard(child)
            listening.cancel()
            await asyncio.wait([listening])
        child.ended.set()
        child.left.set()

    async def _listen(self, child: Child, ours: socket.socket) -> None:
        with suppress(OSError):
            while what := await asyncio.get_running_loop().sock_recv(ours, 2):
                child.runs.set()
                self._proven.set()
                if STANDS in what:
                    child.stands.set()

    def _send(self, number: int) -> None:
        for child in self._children:
            child.send(number)

    async def _until(self, *events: asyncio.Event, seconds: float | None = None) -> None:
        """Wait for one of the events, the wish to stop, or so long."""
        waiting = [asyncio.ensure_future(one.wait()) for one in (self._stopping, *events)]
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


def _folder() -> str:
    """The current folder by the name it was entered by, which may be a link that the next deployment sets anew."""
    named = os.environ.get("PWD", "")
    with suppress(OSError):
        if os.path.isabs(named) and os.path.samefile(named, "."):
            return named
    return os.getcwd()


def _told(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
