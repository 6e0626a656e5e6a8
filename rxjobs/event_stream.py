"""Where events come out: a hot Observable, whose listeners can harm nothing."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rxjobs.events import Event

log = logging.getLogger("rxjobs.events")

FORGIVEN = 3
"""How often a listener may raise before it is left out."""

Listener = Callable[[Event], object]


class EventStream(Observable[Event]):
    """A hot Observable of events. A listener that raises is told off in the log, and left out after the third time."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = False
        """Whether anyone listens: on the hot path an event that nobody hears is not made."""
        self.failures: Counter[str] = Counter()
        """How often a listener raised, by the name of the event that it was told of."""
        self._listeners: tuple[Listener, ...] = ()
        self._failures: dict[Listener, int] = {}

    def emit(self, event: Event) -> None:
        """Tell every listener. Never raises."""
        for listener in self._listeners:
            try:
                listener(event)
            except BaseException:  # a listener may raise anything, also what would stop the task that tells it
                self._raised(listener, event)

    def _subscribe_core(self, observer: abc.ObserverBase[Event], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        return self.listen(observer.on_next)

    def listen(self, listener: Listener) -> abc.DisposableBase:
        """Have a function told of every event: what `subscribe` does, without what reactivex puts in between."""
        # the tuple is swapped, never changed, so that emit needs no lock
        self._listeners = (*self._listeners, listener)
        self.heard = True
        return Disposable(lambda: self._leave(listener))

    def _leave(self, listener: Listener) -> None:
        self._listeners = tuple(one for one in self._listeners if one != listener)
        self.heard = bool(self._listeners)
        self._failures.pop(listener, None)

    def _raised(self, listener: Listener, event: Event) -> None:
        failures = self._failures[listener] = self._failures.get(listener, 0) + 1
        self.failures[event.name] += 1
        last = failures >= FORGIVEN
        log.exception("a listener of app.events raised on %s%s", event.name, ", and is left out from now on" if last else "")
        if last:
            self._leave(listener)
