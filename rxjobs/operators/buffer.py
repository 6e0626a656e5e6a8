"""Gather jobs into lists."""

from __future__ import annotations

from typing import Any

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable, SerialDisposable

from rxjobs.demand import let_go
from rxjobs.errors import InvalidOption
from rxjobs.job import Job
from rxjobs.operators.stage import Operator, check_count, items, on_the_loop
from rxjobs.scope import scope_here


def buffer(count: int, timespan: float | None = 1.0, *, name: str = "buffer") -> Operator:
    """Lists of up to `count` jobs; a list that is not full goes on `timespan` seconds after its first job came.

    Without a timespan (None) a list waits until it is full, however long: give one unless the stream always goes on.

        ──a─b─c───d──────────
          buffer(3, 5 s)
        ──────[abc]─────[d]──
    """
    check_count("buffer", "count", count)
    if timespan is not None and timespan <= 0:
        raise InvalidOption(f"rj.buffer: timespan is a number of seconds above 0, or None, not {timespan!r}")

    def operator(source: Observable[Any]) -> Observable[Any]:
        def subscribe(observer: abc.ObserverBase[Any], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            here = scope_here(scheduler).scheduler
            gathered: list[Job] = []
            timer = SerialDisposable()

            def on_next(item: Any) -> None:
                for one in items(name, item):
                    if not isinstance(one, Job):
                        observer.on_next(one)
                        continue
                    gathered.append(one)
                    if len(gathered) == 1 and timespan is not None and count > 1:
                        timer.disposable = here.later(timespan, send_in_time)
                    if len(gathered) == count:
                        send()

            def send() -> None:
                timer.disposable = Disposable()
                jobs = gathered.copy()
                gathered.clear()
                if jobs:
                    observer.on_next(jobs)

            def send_in_time() -> None:
                try:
                    send()
                except Exception as error:
                    observer.on_error(error)

            def end() -> None:
                send()
                observer.on_completed()

            def leave() -> None:
                timer.dispose()
                while gathered:
                    let_go(gathered.pop())

            return CompositeDisposable(
                source.subscribe(on_the_loop(observer, here, on_next, end), scheduler=here),
                Disposable(lambda: here.here(leave)),
            )

        return Observable(subscribe)

    return operator
