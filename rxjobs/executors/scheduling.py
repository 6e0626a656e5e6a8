"""Executors as reactivex Schedulers, so that `ops.observe_on` takes them."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from reactivex import abc, typing
from reactivex.disposable import CompositeDisposable, Disposable, SingleAssignmentDisposable
from reactivex.scheduler.periodicscheduler import PeriodicScheduler

from rxjobs.errors import InvalidOption
from rxjobs.log_lines import logger

log = logger("rxjobs")

S = TypeVar("S")


class Timers:
    """Functions called later, by one thread that lives as long as there is something to wait for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, list[Callable[[], object]]]] = []
        self._turn = itertools.count()
        self._ticking = False

    def call_later(self, seconds: float, function: Callable[[], object]) -> abc.DisposableBase:
        """Call a function, which must be short and not raise, after so many seconds."""
        # disposed, it is emptied: what it would have called is let go at once
        cell = [function]
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._turn), cell))
            if not self._ticking:
                threading.Thread(target=self._tick, name="rxjobs-timers", daemon=True).start()
                self._ticking = True
            self._changed.notify()
        return Disposable(cell.clear)

    def _tick(self) -> None:
        while True:
            with self._changed:
                if not self._due:
                    self._ticking = False
                    return
                seconds = self._due[0][0] - time.monotonic()
                if seconds > 0:
                    self._changed.wait(seconds)
                    continue
                cell = heapq.heappop(self._due)[2]
            for function in tuple(cell):
                function()


timers = Timers()
"""One for all executors."""


class ClosureScheduler(PeriodicScheduler):
    """A scheduler on whatever can run a closure."""

    @abstractmethod
    def _begin(self, closure: Callable[[], None]) -> Callable[[], Any]:
        """Have a closure run; returns what keeps it from that if it has not begun."""

    def schedule(self, action: abc.ScheduledAction[S], state: S | None = None) -> abc.DisposableBase:
        """Have the action run by a thread of the pool."""
        made = SingleAssignmentDisposable()

        def act() -> None:
            try:
                if not made.is_disposed:
                    made.disposable = self.invoke_action(action, state)
            except BaseException:  # the pool's threads outlive what they run
                log.exception("an action that was scheduled on %s raised", type(self).__name__)

        withdraw = self._begin(act)
        return CompositeDisposable(made, Disposable(withdraw))

    def schedule_relative(
        self, duetime: typing.RelativeTime, action: abc.ScheduledAction[S], state: S | None = None
    ) -> abc.DisposableBase:
        """Have the action run by a thread of the pool after a while."""
        seconds = self.to_seconds(duetime)
        if seconds <= 0:
            return self.schedule(action, state)
        made = SingleAssignmentDisposable()

        def act() -> None:
            try:
                made.disposable = self.schedule(action, state)
            except Exception:  # a pool that was shut down; the timers of others go on
                log.exception("an action could not be scheduled on %s", type(self).__name__)

        return CompositeDisposable(made, timers.call_later(seconds, act))

    def schedule_absolute(
        self, duetime: typing.AbsoluteTime, action: abc.ScheduledAction[S], state: S | None = None
    ) -> abc.DisposableBase:
        """Have the action run by a thread of the pool at an instant."""
        return self.schedule_relative(self.to_datetime(duetime) - self.now, action, state)


class NoScheduler(PeriodicScheduler):
    """The scheduler of an executor whose code runs in other processes: there is none, and it says so."""

    def schedule(self, action: Any, state: Any = None) -> abc.DisposableBase:
        raise InvalidOption(
            f"{type(self).__name__} runs jobs in other processes, where the closures of an Observable cannot go; give "
            "observe_on in_threads(n), and run the jobs with execute(on=...)"
        )

    def schedule_relative(self, duetime: Any, action: Any, state: Any = None) -> abc.DisposableBase:
        return self.schedule(action, state)

    def schedule_absolute(self, duetime: Any, action: Any, state: Any = None) -> abc.DisposableBase:
        return self.schedule(action, state)
