"""Who gives jobs and who takes them, with what they say to each other written down."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import reactivex as rx
from reactivex import operators as ops
from reactivex.subject import Subject

import rxjobs as rj

NEXT, ERROR, COMPLETED = "next", "error", "completed"


class Asked:
    """A source, and what it was asked for and told; it can be woken from outside, held up, and made to fail."""

    def __init__(self, source: rj.Source) -> None:
        self.source = source
        self.asked: list[int] = []
        self.fetched = 0
        """How many jobs the source has given, held up or not."""
        self.given = 0
        self.settled: list[rj.Finished] = []
        self.wake: Subject[object] = Subject()
        self.listened = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.fails = False

    @property
    def wakes(self) -> rx.Observable[object]:
        self.listened += 1
        return rx.merge(self.wake, self.source.wakes.pipe(ops.do_action(on_completed=self.wake.on_completed)))

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens to its wakes."""
        return bool(self.wake.observers)

    async def fetch(self, n: int) -> list[rj.Job]:
        self.asked.append(n)
        jobs = await self.source.fetch(n)
        self.fetched += len(jobs)
        await self.answers.wait()
        if self.fails:
            await self.source.settle([rj.Finished(job, rj.Release()) for job in jobs])
            raise ConnectionError("gone")
        self.given += len(jobs)
        return jobs

    async def settle(self, finished: list[rj.Finished]) -> None:
        await self.source.settle(finished)
        self.settled += finished


class Taker(rx.abc.ObserverBase[Any]):
    """Takes what comes and writes it down; `does` is what it does with each, while it is told of it."""

    def __init__(self, does: Callable[[Any], object] = lambda item: None) -> None:
        self.signals: list[str] = []
        self.taken: list[Any] = []
        self.overlaps = 0
        self.threads: set[int] = set()
        self.depths: list[int] = []
        self._does = does
        self._is_told = False

    def on_next(self, value: Any) -> None:
        self.taken.append(value)
        self._told(NEXT, lambda: self._does(value))

    def on_error(self, error: Exception) -> None:
        self._told(ERROR, lambda: None)

    def on_completed(self) -> None:
        self._told(COMPLETED, lambda: None)

    @property
    def ends(self) -> list[str]:
        """How often, and how, it was told that it is over."""
        return [signal for signal in self.signals if signal != NEXT]

    def _told(self, signal: str, does: Callable[[], object]) -> None:
        self.overlaps += self._is_told
        self._is_told = True
        self.signals.append(signal)
        self.threads.add(threading.get_ident())
        self.depths.append(_depth())
        does()
        self._is_told = False


class Spy:
    """An operator that writes down what each of its subscriptions is told, before it passes that on."""

    def __init__(self) -> None:
        self.takers: list[Taker] = []
        self.disposed = 0

    def __call__(self, source: rx.Observable[Any]) -> rx.Observable[Any]:
        def subscribe(observer: Any, scheduler: Any = None) -> Any:
            taker = Taker()
            self.takers.append(taker)
            told = source.pipe(ops.do_action(taker.on_next, taker.on_error, taker.on_completed))
            return told.pipe(ops.finally_action(self._dispose)).subscribe(observer, scheduler=scheduler)

        return rx.create(subscribe)

    @property
    def jobs(self) -> list[rj.Job]:
        """The jobs that any of them was given."""
        return [item for taker in self.takers for item in taker.taken]

    def _dispose(self) -> None:
        self.disposed += 1


def _depth() -> int:
    """How many calls are in each other here."""
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth
