"""Daemon threads that run closures, first come, first served."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum, auto
from queue import SimpleQueue
from typing import Any, TypeVar

from rxjobs.errors import InvalidOption
from rxjobs.log_lines import logger

log = logger("rxjobs")

T = TypeVar("T")

MOST = 10_000
"""More threads or processes than any machine has use for."""


class Stage(Enum):
    """Where a piece of work stands."""

    WAITING = auto()
    WITHDRAWN = auto()
    RUNNING = auto()
    ABANDONED = auto()
    ENDED = auto()


class Work:
    """One closure on its way through a crew."""

    __slots__ = ("run", "stage", "then")

    def __init__(self, run: Callable[[], Any], then: Callable[[Any], object]) -> None:
        self.run = run
        self.then = then
        self.stage = Stage.WAITING


class Crew:
    """At most `size` threads, started as they are needed.

    They are daemons, since one that hangs must not keep the interpreter from exiting. A thread whose work was abandoned
    is replaced while it runs on, for at most `spare` of them.
    """

    def __init__(self, name: str, size: int, spare: int = 0) -> None:
        self.abandoned = 0
        self._name = name
        self._size = size
        self._spare = spare
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._busy = 0
        self._waiting = 0
        self._dismissed = False

    def submit(self, run: Callable[[], T], then: Callable[[T], object]) -> Work:
        """Have a closure run, and its value handed on after; raises RuntimeError if no thread can be started."""
        work = Work(run, then)
        with self._lock:
            self._waiting += 1
            try:
                self._staff()
            except RuntimeError:
                # others will get to it, if there are others
                if not self._threads:
                    self._waiting -= 1
                    raise
            self._queue.put(work)
        return work

    def withdraw(self, work: Work) -> bool:
        """Take back work that has not begun: it never will. False where it has."""
        with self._lock:
            if work.stage is Stage.WAITING:
                work.stage = Stage.WITHDRAWN
                # the queue keeps its place until a thread comes by, which need not keep the job with it
                work.run = work.then = _nothing
            return work.stage is Stage.WITHDRAWN

    def abandon(self, work: Work) -> bool:
        """Give up on running work, and put another thread in the place of its own. False where it has ended."""
        with self._lock:
            if work.stage is not Stage.RUNNING:
                return False
            work.stage = Stage.ABANDONED
            self.abandoned += 1
            try:
                self._staff()
            except RuntimeError:
                log.exception("no thread could be started in the place of an abandoned one")
            return True

    def dismiss(self) -> None:
        """Let the threads end once there is nothing left to run."""
        with self._lock:
            self._dismissed = True
            for _ in range(self._threads):
                self._queue.put(None)

    @property
    def busy(self) -> int:
        """How many threads run something."""
        return self._busy

    @property
    def waiting(self) -> int:
        """How many closures wait for a thread."""
        return self._waiting

    @property
    def _room(self) -> int:
        return self._size + min(self.abandoned, self._spare)

    def _staff(self) -> None:
        if self._waiting <= self._threads - self._busy or self._threads >= self._room:
            return
        threading.Thread(target=self._work, name=self._name, daemon=True).start()
        self._threads += 1
        if self._dismissed:
            self._queue.put(None)

    def _work(self) -> None:
        while self._work_once():
            pass

    def _work_once(self) -> bool:
        """Run the next closure; whether there may be another. No local of it keeps the last job alive."""
        work = self._queue.get()
        with self._lock:
            if work is None:
                self._threads -= 1
                return False
            self._waiting -= 1
            if work.stage is Stage.WITHDRAWN:
                return True
            work.stage = Stage.RUNNING
            self._busy += 1
        value = _guarded(work.run)
        with self._lock:
            self._busy -= 1
            if work.stage is Stage.ABANDONED:
                self.abandoned -= 1
            work.stage = Stage.ENDED
            is_surplus = self._threads > self._room
            self._threads -= is_surplus
        _guarded(work.then, value)
        # an exception in it holds this frame: a cycle would keep the job alive until the next garbage collection
        del value
        return not is_surplus


def check_count(owner: str, name: str, value: Any, least: int = 1) -> None:
    """Refuse what is no number of threads or processes."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise InvalidOption(f"{owner}: {name} is a whole number from {least} to {MOST}, not {value!r:.200}")


def _guarded(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except BaseException:  # a thread outlives whatever it runs
        log.exception("something that rxjobs ran in a thread failed")


def _nothing(*_: object) -> None:
    """What work that was withdrawn does."""
