"""Calls that wait for a process, first come, first served, and the threads that see to them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from queue import SimpleQueue
from typing import Protocol

from rxjobs.calls import Call
from rxjobs.executors.ran import Ran, Reply, give_all
from rxjobs.log_lines import logger

log = logger("rxjobs")

Answered = list[tuple[Reply, Ran]]
"""What is owed to those who wait."""


class Stage(Enum):
    """Where a call stands."""

    WAITING = auto()
    TAKEN = auto()
    WITHDRAWN = auto()
    ENDED = auto()


class Errand(Protocol):
    """What one thread does, from one call on."""

    def run(self) -> Answered:
        """See to its calls; blocks until all have ended or wait again."""
        ...

    def give_up(self, error: BaseException) -> Answered:
        """End its calls: to see to them failed."""
        ...

    def withdraw(self, asked: Asked) -> bool:
        """Have a call end, or never begin. False where it is not among its calls any more, since it waits again."""
        ...


class Asked:
    """One call on its way to a process and back."""

    __slots__ = ("call", "deaths", "errand", "path", "reply", "request", "stage", "start")

    def __init__(self, call: Call, path: str, request: bytes) -> None:
        self.call: Call | None = call
        self.path = path
        self.request = request
        self.start = call.start
        self.start.wait()
        self.reply = Reply()
        self.stage = Stage.WAITING
        self.errand: Errand | None = None
        """Who sees to it, once it is taken."""
        self.deaths = 0
        """How many processes that it was given to have died before it began."""

    @property
    def recalled(self) -> str | None:
        """Why its job may not begin any more: it may have waited long."""
        hold = None if self.call is None else self.call.job.hold
        return None if hold is None else hold.recalled

    def forget(self) -> None:
        """Let go of the job: what is left of a call in a line, or with a thread, must not keep it."""
        self.call, self.request = None, b""


class Line:
    """Calls in order, and at most `size` threads, started as they are needed, of which each serves one after the other.

    They are daemons, since one that hangs must not keep the interpreter from exiting.
    """

    def __init__(self, name: str, size: int, errand: Callable[[Asked], Errand]) -> None:
        self._name = name
        self._size = size
        self._errand = errand
        self._lock = threading.Lock()
        self._waiting: deque[Asked] = deque()
        # at least one for each call that waits, and once they are dismissed for each thread: a thread sleeps on nothing else
        self._tokens: SimpleQueue[None] = SimpleQueue()
        self._threads = 0
        self._busy = 0
        self._dismissed = False

    def add(self, asked: Asked) -> None:
        """Have a call wait at the end; raises RuntimeError if there is no thread and none can be started."""
        with self._lock:
            self._waiting.append(asked)
            try:
                self._staff()
            except RuntimeError:
                # others will get to it, if there are others
                if not self._threads:
                    self._waiting.remove(asked)
                    raise
            self._tokens.put(None)

    def put_back(self, calls: Sequence[Asked]) -> None:
        """Have calls that were taken wait again, before all others."""
        with self._lock:
            for asked in reversed(calls):
                asked.errand = None
                if asked.stage is Stage.TAKEN:
                    asked.stage = Stage.WAITING
                    asked.start.wait()
                    self._waiting.appendleft(asked)
                    self._tokens.put(None)

    def withdraw(self, asked: Asked) -> None:
        """Have a call never begin, or end at once if it has."""
        while True:
            with self._lock:
                errand = asked.errand
                if asked.stage is Stage.WAITING:
                    asked.stage = Stage.WITHDRAWN
                    asked.forget()
            if errand is None or errand.withdraw(asked):
                return

    def more(self, errand: Errand, fits: Callable[[Asked, int], bool]) -> list[Asked]:
        """Take those next in line that fit, each asked with how many others there are to take: never more than a fair share."""
        taken: list[Asked] = []
        with self._lock:
            share = len(self._waiting) // self._size
            while self._waiting and len(taken) < share:
                asked = self._waiting[0]
                if asked.stage is Stage.WAITING:
                    if asked.recalled is not None or not fits(asked, len(taken)):
                        break
                    asked.stage = Stage.TAKEN
                    asked.errand = errand
                    taken.append(asked)
                self._waiting.popleft()
        return taken

    def dismiss(self) -> None:
        """Let the threads end once nothing waits."""
        with self._lock:
            self._dismissed = True
            for _ in range(self._threads):
                self._tokens.put(None)

    @property
    def busy(self) -> int:
        """How many threads see to calls."""
        return self._busy

    @property
    def waiting(self) -> int:
        """How many calls wait for one."""
        return len(self._waiting)

    def _staff(self) -> None:
        if len(self._waiting) <= self._threads - self._busy or self._threads >= self._size:
            return
        threading.Thread(target=self._work, name=self._name, daemon=True).start()
        self._threads += 1
        if self._dismissed:
            self._tokens.put(None)

    def _work(self) -> None:
        while self._work_once():
            pass

    def _work_once(self) -> bool:
        """See to the next call; whether there may be another. No local of it keeps the last job alive."""
        self._tokens.get()
        with self._lock:
            while self._waiting:
                asked = self._waiting.popleft()
                if asked.stage is Stage.WAITING:
                    asked.stage = Stage.TAKEN
                    errand = asked.errand = self._errand(asked)
                    self._busy += 1
                    break
            else:
                self._threads -= self._dismissed
                return not self._dismissed
        del asked
        answered: Answered = []
        try:
            answered = errand.run()
        except BaseException as error:  # a thread outlives whatever it sees to, and nobody waits for ever
            log.exception("something that rxjobs ran in a thread failed")
            answered = errand.give_up(error)
        with self._lock:
            self._busy -= 1
        give_all(answered)
        return True
