"""Write down how jobs ended, which gives their places in demand back."""

from __future__ import annotations

from typing import Any

from reactivex import Observable, abc

from rxjobs.checks import checked_name
from rxjobs.demand import settle
from rxjobs.operators.stage import Operator, behind, one_by_one
from rxjobs.outcome import Finished
from rxjobs.scope import scope_here


def ack(*, name: str = "ack") -> Operator:
    """Settle each finished job with its source, and pass it on once that is durable.

    What gathers during one write goes into the next.

    ──A─B─C────────
      ack()
    ─────A─────BC──      B and C were written together, while nothing waited
    """

    checked_name("a stage", name)

    def operator(source: Observable[Any]) -> Observable[Any]:
        def subscribe(observer: abc.ObserverBase[Any], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            here = scope_here(scheduler).scheduler
            writing = 0
            ended = False

            def take(finished: Finished) -> None:
                nonlocal writing
                if settle(finished, acked):
                    writing += 1
                else:
                    observer.on_next(finished)

            def acked(finished: Finished) -> None:
                nonlocal writing
                writing -= 1
                try:
                    observer.on_next(finished)
                except Exception as error:
                    observer.on_error(error)
                if ended:
                    complete_if_idle()

            def end() -> None:
                nonlocal ended
                ended = True
                complete_if_idle()

            def complete_if_idle() -> None:
                if not writing:
                    observer.on_completed()

            return source.subscribe(one_by_one(observer, here, name, observer.on_next, take, end), scheduler=here)

        return behind(source, subscribe)

    return operator
