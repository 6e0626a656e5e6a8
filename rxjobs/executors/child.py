"""The child process of an executor: what it runs, and the parent's end of its pipe."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import multiprocessing
import os
import select
import signal
import socket
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Coroutine, Iterator, Sequence
from contextvars import copy_context
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from rxjobs.executors.memory import limit_memory, memory_of
from rxjobs.executors.ran import Ran
from rxjobs.executors.remote import Wait, answer, find
from rxjobs.telemetry.inherited import Inherited, inheritance, taken

NAME = "rxjobs-child"

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What a terminal or a supervisor sends to a whole process group. The parent decides what becomes of its children."""

START_SECONDS = 60.0
"""Seconds in which a child has started, and has imported the module of a function. One that has not hangs."""

LOOK_SECONDS = 1.0
"""How often a child that says nothing is looked at: its own children may hold its pipe open after it is gone."""

around: set[str] = set()
"""Paths of functions that make a context manager, inside which each job of a child runs. Their modules are imported first."""


class Child:
    """One child, which answers one request after the other. Its methods block; another thread may call `kill`, and those of turns.

    It takes a turn for each request just before that begins, which says whether it is to. What is taken back of them here is of
    requests that have not begun and do not: no byte has two readers.
    """

    GO, SKIP = b"+", b"-"

    def __init__(self, memory: int | None = None) -> None:
        self._memory = memory
        self._at_first = 0
        self._known: set[str] = set()
        self._connection, theirs = multiprocessing.Pipe()
        self._turns, self._turns_taken = socket.socketpair()
        # spawn: a fork would copy the locks, sockets and threads of a running app
        self._process = multiprocessing.get_context("spawn").Process(
            target=serve, args=(theirs, self._turns_taken, memory, inheritance(), tuple(around)), name=NAME, daemon=False
        )
        self._parent = os.getpid()
        self.ended = threading.Event()
        try:
            with _signals_blocked():
                self._process.start()
        except BaseException:
            self.hang_up()
            raise
        finally:
            theirs.close()
        self._readable = select.poll()
        self._readable.register(self._connection, select.POLLIN)
        _living.add(self)
        if _exiting.is_set():
            self.kill()

    @property
    def is_quiet(self) -> bool:
        """Whether it waits for a request: an idle one that is gone, or says what nobody asked, is of no use."""
        return not self._readable.poll(0)

    def prepare(self, path: str) -> None:
        """Have it ready to run a function: started, and its module imported. Raises as `ask`, and TimeoutError if it hangs."""
        if path not in self._known:
            self._connection.send_bytes(path.encode())
            if self.hear(START_SECONDS) is None:
                raise TimeoutError(f"it was not ready after {START_SECONDS:g} s")
            self._known.add(path)
            self._at_first = self._at_first or memory_of(self._process.pid)

    def is_prepared(self, path: str) -> bool:
        """Whether it is ready to run a function."""
        return path in self._known

    @property
    def is_starting(self) -> bool:
        """Whether it has not been ready for anything yet."""
        return not self._known

    def give_turns(self, turns: bytes) -> None:
        """Let it begin so many requests, or pass over them: to be given before they are sent."""
        self._turns.sendall(turns)

    def take_turns(self) -> bytes:
        """Take back the turns it has not taken; works when it is gone, too."""
        try:
            return self._turns_taken.recv(64 * 1024, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""

    def send(self, requests: Sequence[bytes]) -> None:
        """Have it answer these, each by itself; raises OSError where it is gone."""
        # JSON text of msgspec's has no line ends
        self._connection.send_bytes(b"\n".join(requests))

    def hear(self, seconds: float | None = None) -> bytes | None:
        """Its next answer, or the report of the job that runs; None if it has none in so many seconds.

        Raises EOFError or OSError where it is gone.
        """
        until = None if seconds is None else time.monotonic() + seconds
        look = LOOK_SECONDS if seconds is None else min(LOOK_SECONDS, seconds)
        while not self._readable.poll(look * 1000):
            if until is not None:
                look = min(LOOK_SECONDS, until - time.monotonic())
                if look <= 0:
                    return None
            if not self._process.is_alive():
                raise EOFError
        return self._connection.recv_bytes()

    @property
    def is_swollen(self) -> bool:
        """Whether its jobs have left so much behind in it that the next one might be refused memory for what is not its own."""
        return self._memory is not None and memory_of(self._process.pid) - self._at_first > self._memory / 2

    def kill(self) -> None:
        """End it at once, stopped or not."""
        # a fork of the parent has a copy of this object, and no child
        if os.getpid() == self._parent and not self.ended.is_set():
            with contextlib.suppress(ValueError, OSError):
                self._process.kill()

    def hang_up(self) -> None:
        """Ask it to end: it finds its pipe closed."""
        self._connection.close()
        self._turns.close()
        self._turns_taken.close()

    def end(self, patience: float = 0.5) -> str:
        """See it gone and leave nothing of it behind; killed after so many seconds. Returns how it ended."""
        self.hang_up()
        self._process.join(patience)
        if self._process.exitcode is None:
            self.kill()
            self._process.join(5)
        code = self._process.exitcode
        self.ended.set()
        # one that another part of this program waited for cannot be waited for here
        with contextlib.suppress(ValueError):
            self._process.close()
        return _how(code)


def is_child() -> bool:
    """Whether this process is such a child. A script without a main guard would start its app in there once more."""
    return multiprocessing.current_process().name == NAME


def serve(
    connection: Connection,
    turns: socket.socket,
    memory: int | None = None,
    inherited: Inherited | None = None,
    within: Sequence[str] = (),
) -> None:
    """Answer requests until the parent hangs up. A path in place of them is that of a function to come: its module is imported."""
    for number in SIGNALS:
        # a handler of its own, not SIG_IGN: that would go over to every program the job starts
        signal.signal(number, _leave_it_to_the_parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=_die_with_the_parent, name="rxjobs-parent", daemon=True).start()
    with taken(inherited):
        if memory is not None:
            limit_memory(memory)
        _serve(connection, turns, within)


def _serve(connection: Connection, turns: socket.socket, within: Sequence[str]) -> None:
    pid = os.getpid()
    with asyncio.Runner() as runner, contextlib.suppress(EOFError, OSError):

        def wait_for(coroutine: Coroutine[Any, Any, Ran]) -> Ran:
            return runner.run(coroutine, context=copy_context())

        while True:
            said = connection.recv_bytes()
            if not said.startswith(b"{"):
                _import(*within, said.decode())
                connection.send_bytes(b"")
                continue
            for request in said.split(b"\n"):
                turn = turns.recv(1)
                if turn == Child.GO:
                    _answer(connection, request, wait_for, pid, within)
                elif turn != Child.SKIP:
                    raise EOFError


def _answer(connection: Connection, request: bytes, wait_for: Wait, pid: int, within: Sequence[str]) -> None:
    speaking = threading.Lock()

    def tell(report: bytes) -> None:
        with speaking:
            if os.getpid() == pid:  # a fork has nothing to say here
                connection.send_bytes(report)

    said = answer(request, wait_for, tell, within=within)
    if os.getpid() != pid:
        # the job forked, and this is its fork: the answer is not its to give
        os._exit(0)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the job may have put anything there, or closed it
            stream.flush()
    with speaking:
        connection.send_bytes(said)


def _import(*paths: str) -> None:
    # what is wrong with it is told when it is to run
    with contextlib.suppress(Exception):
        for path in paths:
            find(path)


def _leave_it_to_the_parent(*_: Any) -> None:
    """A signal's handler."""


def _die_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """A child that is started here takes none of the signals until it is ready for them; nor does this thread."""
    # started from within, it would unblock them again. That it is started anew is a warning, maybe an error, and no job's fault
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _how(code: int | None) -> str:
    if code is None:
        return "is gone, and how is not known"
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    cause = ", as the system does when memory runs out" if name == "SIGKILL" else ""
    return f"was killed by {name}{cause}"


_living: weakref.WeakSet[Child] = weakref.WeakSet()
_exiting = threading.Event()


def _kill_all() -> None:
    """At exit, before multiprocessing waits for the children of an executor that nobody closed."""
    _exiting.set()
    for child in tuple(_living):
        child.kill()


atexit.register(_kill_all)
