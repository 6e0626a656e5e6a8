"""Where events come out: a hot Observable, whose listeners can harm nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rxjobs.events import Event, JobStarted, JobStopped
from rxjobs.job import Job
from rxjobs.log_lines import logger
from rxjobs.outcome import Outcome

log = logger("rxjobs.events")

FORGIVEN = 3
"""How often a listener may raise before it is left out."""

Listener = Callable[[Event], object]


class Runs(Protocol):
    """A listener's shorter way for what comes with each run: where nobody else listens, no event is made of it."""

    def began(self, job: Job, queue_time: int) -> object:
        """As JobStarted."""

    def ended(self, job: Job, outcome: Outcome, duration: int) -> object:
        """As JobStopped."""


class EventStream(Observable[Event]):
    """A hot Observable of events. A listener that raises is told off in the log, and left out after the third time."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = False
        """Whether anyone listens: an event that nobody hears need not be made."""
        self.failures: Counter[str] = Counter()
        """How often a listener raised, by the name of the event that it was told of."""
        self._listeners: tuple[Listener, ...] = ()
        self._runs: tuple[tuple[Listener, Runs], ...] = ()
        self._without_runs: tuple[Listener, ...] = ()
        """Those that hear of runs by events."""
        self._failures: dict[Listener, int] = {}

    def emit(self, event: Event) -> None:
        """Tell every listener. Never raises."""
        self.tell(self._listeners, event)

    def run_began(self, job: Job, queue_time: int, at: int) -> None:
        """Tell every listener that a run began, at that instant by this process's own clock, ns. Never raises."""
        for listener, runs in self._runs:
            try:
                runs.began(job, queue_time)
            except BaseException:  # as below
                self._raised(listener, JobStarted.name)
        if self._without_runs:
            self.tell(self._without_runs, JobStarted(job=job.told, queue_time=queue_time, monotonic_time=at))

    def run_stopped(self, job: Job, outcome: Outcome, queue_time: int, duration: int) -> None:
        """Tell every listener that a run ended without a failure. Never raises."""
        for listener, runs in self._runs:
            try:
                runs.ended(job, outcome, duration)
            except BaseException:  # as below
                self._raised(listener, JobStopped.name)
        if self._without_runs:
            stopped = JobStopped(job=job.told, duration=duration, queue_time=queue_time, outcome=outcome)
            self.tell(self._without_runs, stopped)

    def tell(self, listeners: tuple[Listener, ...], event: Event) -> None:
        """Tell these listeners. Never raises."""
        for listener in listeners:
            try:
                listener(event)
            except BaseException:  # a listener may raise anything, also what would stop the task that tells it
                self._raised(listener, event.name)

    def _subscribe_core(self, observer: abc.ObserverBase[Event], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        return self.listen(observer.on_next)

    def listen(self, listener: Listener, runs: Runs | None = None) -> abc.DisposableBase:
        """Have a function told of every event: what `subscribe` does, without what reactivex puts in between.

        With `runs` it is not told of what that is told of.
        """
        # swapped, never changed, so that to tell needs no lock
        if runs is not None:
            self._runs = (*self._runs, (listener, runs))
        self._set((*self._listeners, listener))
        return Disposable(lambda: self._leave(listener))

    def _leave(self, listener: Listener) -> None:
        self._runs = tuple(one for one in self._runs if one[0] != listener)
        self._set(tuple(one for one in self._listeners if one != listener))
        self._failures.pop(listener, None)

    def _set(self, listeners: tuple[Listener, ...]) -> None:
        with_runs = {listener for listener, _ in self._runs}
        self._without_runs = tuple(one for one in listeners if one not in with_runs)
        self._listeners = listeners
        self.heard = bool(listeners)

    def _raised(self, listener: Listener, name: str) -> None:
        failures = self._failures[listener] = self._failures.get(listener, 0) + 1
        self.failures[name] += 1
        last = failures >= FORGIVEN
        log.exception("a listener of app.events raised on %s%s", name, ", and is left out from now on" if last else "")
        if last:
            self._leave(listener)
