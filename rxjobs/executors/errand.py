"""Calls that a process is given together: it runs one after the other, and each may be cut short at any moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from rxjobs.errors import ChildDied
from rxjobs.executors import remote
from rxjobs.executors.child import Child
from rxjobs.executors.line import Answered, Asked, Line, Stage
from rxjobs.executors.ran import Ran, give_all
from rxjobs.outcome import Release

TOGETHER_SECONDS = 0.001
"""A call goes together with others if these are likely to take no longer than so many seconds."""
BACK_SECONDS = 0.004
"""After so many seconds those that have not begun wait again, for whoever has time for them."""
MOST_TOGETHER = 32
SMALL = 16 * 1024
"""Bytes that calls which go together take at most."""
DEATHS = 3
"""How many processes may die that had a call to begin with next, and had not begun it. It is charged for the last one."""


class Paces:
    """How long calls of each function have taken of late."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def expected(self, path: str) -> float:
        """Seconds; endless where nothing is known."""
        return self._seconds.get(path, float("inf"))

    def learn(self, path: str, seconds: float) -> None:
        """A call took so many seconds, or has taken them so far."""
        before = self._seconds.get(path, seconds)
        self._seconds[path] = before + 0.3 * (seconds - before)


class Children(Protocol):
    """Where an errand has its child from, and what becomes of it."""

    may_go_together: bool

    def take(self) -> Child: ...

    def give_back(self, child: Child) -> None: ...

    def bury(self, child: Child) -> str: ...


class OneErrand:
    """A thread's way to a child and back, for one call and those that go with it."""

    def __init__(self, first: Asked, line: Line, children: Children, paces: Paces) -> None:
        self._line = line
        self._children = children
        self._paces = paces
        self._lock = threading.Lock()
        self._child: Child | None = None
        # None in the place of one that has ended, was withdrawn or waits again: the child's turns are counted in places
        self._calls: list[Asked | None] = [first]
        self._bytes = len(first.request)
        self._expected = paces.expected(first.path)
        self._is_sent = False
        self._kept: int | None = None
        """How many calls at the end never begin: their turns were taken from the child, which is killed."""

    def run(self) -> Answered:
        """Have a child run the calls; blocks until all have ended or wait again."""
        first = self._calls[0]
        if first is not None and (reason := first.recalled) is not None:
            return self._end([first], Release(reason=reason))
        try:
            child = self._children.take()
        except Exception as error:
            died = ChildDied(f"no process could be started for the job: {error}")
            died.__cause__ = error
            return self._end(self._calls, died)
        answered: Answered = []
        try:
            self._go(child, answered)
        except TimeoutError as error:
            child.kill()
            self._let_go(child)
            self._children.bury(child)
            answered += self._end(self._calls, ChildDied(f"the process that was to run the job was ended: {error}"))
        except (EOFError, OSError):
            self._let_go(child)
            answered += self._end_dead(f"the process that ran the job {self._children.bury(child)} before it answered")
        except Exception as error:  # a job that wrote into the pipe
            self._let_go(child)
            child.kill()
            self._children.bury(child)
            answered += self._end_dead(f"the process that ran the job was ended: its answer was none ({error!s:.200})")
        else:
            with self._lock:
                is_cut, self._child = self._kept is not None, None
            if is_cut or child.is_swollen:
                self._children.bury(child)
                answered += self._end_dead("the process that ran the job was killed")
            else:
                self._children.give_back(child)
        return answered

    def give_up(self, error: BaseException) -> Answered:
        """End the calls that have not: to see to their child failed."""
        return self._end(self._calls, ChildDied(f"what became of the process that was to run the job is not known: {error!r:.200}"))

    def withdraw(self, asked: Asked) -> bool:
        """Have a call never begin, or the child killed that runs it. False where it waits again."""
        with self._lock:
            if asked.stage is Stage.ENDED:
                return True
            if asked not in self._calls:
                return False
            if self._kept is not None:
                self._drop(asked)
            elif not self._is_sent and (self._child is None or self._child.is_starting):
                # the next call will need it: where a machine is so slow that calls are withdrawn before a child has started, to
                # begin with another each time would make it slower still, and none would ever begin
                self._drop(asked)
            elif not self._is_sent:
                self._cut(0)
            elif self._child is not None:
                self._withdraw_sent(self._child, asked)
            return True

    def _withdraw_sent(self, child: Child, asked: Asked) -> None:
        turns = child.take_turns()
        at = self._calls.index(asked) + len(turns) - len(self._calls)
        if at == -1:
            # it runs: not one of the turns is given again, so that nothing begins in a child that is about to be killed
            self._cut(len(turns))
            return
        if at >= 0:
            turns = turns[:at] + child.SKIP + turns[at + 1 :]
            self._drop(asked)
        child.give_turns(turns)

    def _cut(self, kept: int) -> None:
        self._kept = kept
        if self._child is not None:
            self._child.kill()

    def _drop(self, asked: Asked) -> None:
        self._calls[self._calls.index(asked)] = None
        asked.stage = Stage.WITHDRAWN
        asked.forget()

    def _go(self, child: Child, answered: Answered) -> None:
        with self._lock:
            self._child = child
            if self._kept is not None:
                child.kill()
            first = self._calls[0]
        if first is None:
            return
        child.prepare(first.path)
        with self._lock:
            if self._kept is not None or self._calls[0] is None:
                return
            if self._children.may_go_together and self._bytes <= SMALL:
                self._calls += self._line.more(self, self._fits)
            child.give_turns(child.GO * len(self._calls))
            self._is_sent = True
            # the place of one that is withdrawn from now on is skipped, but is there
            requests = [asked.request for asked in self._calls if asked is not None]
        first.start.begin()
        del first
        child.send(requests)
        self._hear(child, answered)

    def _fits(self, asked: Asked, others: int) -> bool:
        size = self._bytes + len(asked.request)
        is_small = others + 1 < MOST_TOGETHER and size <= SMALL and self._expected <= TOGETHER_SECONDS
        if is_small and self._child is not None and self._child.is_prepared(asked.path):
            self._bytes = size
            self._expected += self._paces.expected(asked.path)
            return True
        return False

    def _hear(self, child: Child, answered: Answered) -> None:
        since = time.monotonic()
        back_at: float | None = since + BACK_SECONDS if len(self._calls) > 1 else None
        while (asked := self._due()) is not None:
            answer = child.hear(0.0) if answered else None
            if answer is None:
                # nothing waits for more to come
                give_all(answered)
                answered.clear()
                answer = child.hear(None if back_at is None else max(0.0, back_at - time.monotonic()))
            if answer is not None and answer.startswith(remote.REPORT):
                self._pass_on(answer, asked)
                continue
            now = time.monotonic()
            self._paces.learn(asked.path, now - since)
            if answer is None:
                self._take_back(child)
                back_at = None
                continue
            since = now
            answered += self._end([asked], remote.read_answer(answer))
            del asked
            following = self._due()
            if following is not None:
                following.start.begin()
            del following

    def _pass_on(self, report: bytes, asked: Asked) -> None:
        if (call := asked.call) is not None:
            remote.pass_on(report, call.job)

    def _due(self) -> Asked | None:
        """The call whose answer comes next, if any does."""
        with self._lock:
            begin = len(self._calls) - (self._kept or 0)
            return next((asked for asked in self._calls[:begin] if asked is not None), None)

    def _take_back(self, child: Child) -> None:
        with self._lock:
            if self._kept is not None:
                return
            turns = child.take_turns()
            child.give_turns(child.SKIP * len(turns))
            self._put_back(len(turns))

    def _put_back(self, count: int) -> None:
        """Have so many of the last calls wait again, which will not begin here."""
        begun = max(0, len(self._calls) - count)
        unbegun = [asked for asked in self._calls[begun:] if asked is not None]
        self._calls[begun:] = [None] * (len(self._calls) - begun)
        self._line.put_back(unbegun)

    def _let_go(self, child: Child) -> None:
        """Nothing begins in this child any more, which is gone or about to be killed."""
        with self._lock:
            self._child = None
            if self._kept is None:
                # where it died before it was given anything, it was the first call that it was being made ready for
                self._kept = len(child.take_turns()) if self._is_sent else 0

    def _end_dead(self, text: str) -> Answered:
        """End what had begun in a child that is gone: the first by its fault, and what else there may be by nobody's."""
        with self._lock:
            kept = min(self._kept or 0, len(self._calls))
            begun = [asked for asked in self._calls[: len(self._calls) - kept] if asked is not None]
            following = next((asked for asked in self._calls if asked is not None), None)
            if not begun and following is not None:
                following.deaths += 1
                if following.deaths >= DEATHS:
                    begun = [following]
                    kept = len(self._calls) - self._calls.index(following) - 1
            self._put_back(kept)
        innocent = Release(reason="the process that ran it was ended for what another job did in it")
        return [*self._end(begun[:1], ChildDied(text)), *self._end(begun[1:], innocent)]

    def _end(self, calls: Sequence[Asked | None], how: Ran | BaseException) -> Answered:
        answered: Answered = []
        with self._lock:
            for asked in [asked for asked in calls if asked is not None]:
                self._calls[self._calls.index(asked)] = None
                asked.stage = Stage.ENDED
                asked.forget()
                answered.append((asked.reply, how if isinstance(how, Ran) else Ran(error=how)))
        return answered
