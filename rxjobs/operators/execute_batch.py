"""Run jobs together: one call for a list of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable

from rxjobs.awaiting import Awaited
from rxjobs.checks import check_timeout
from rxjobs.counted import Counted
from rxjobs.demand import let_go, now
from rxjobs.job import Job
from rxjobs.operators.stage import Operator, behind, check_callable, check_count, items, on_the_loop, working_on
from rxjobs.outcome import Finished
from rxjobs.scope import scope_here
from rxjobs.together import Batch, Handler


def execute_batch(handler: Handler, *, concurrency: int = 1, timeout: float | None = None, name: str = "execute_batch") -> Operator:
    """Call `handler` with each list of jobs that a buffer made, `concurrency` of them at once; `timeout` in seconds.

    It returns None, all are complete; or outcomes in the order of the jobs; or `{job.id: outcome}`, where one that is not named is
    complete. When it raises, or takes longer, all of them fail, each by its own retry rule. A plain function runs in a thread.
    Without a `timeout` of its own it has the shortest of its jobs' types. Each job has its span, and counts for the breaker of its
    type; one that an open breaker holds back is not among those that the handler is given.

        ──[ab]──────[cd]──────
          execute_batch(write)
        ─────A─B───────C─D──
    """
    check_callable("execute_batch", "handler", handler)
    check_count("execute_batch", "concurrency", concurrency)
    check_timeout("rj.execute_batch", timeout)

    counted = Counted(name)

    def operator(source: Observable[Any]) -> Observable[Any]:
        def subscribe(observer: abc.ObserverBase[Any], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            scope = scope_here(scheduler)
            here = scope.scheduler

            async def work(jobs: list[Job]) -> list[Finished]:
                counted.went_in += len(jobs)
                began = now()
                finished = await Batch(jobs, handler, timeout, scope.emit).run()
                counted.worked_together(jobs, now() - began)
                return finished

            running: Awaited[list[Job], list[Finished]] = Awaited(work, concurrency, _OneByOne(observer), here, _let_all_go)
            scope.watch(running)
            scope.count(counted)
            counted.working.add(running)

            def on_next(item: Any) -> None:
                jobs: list[Job] = []
                for one in items(name, item):
                    if isinstance(one, Job):
                        jobs.append(one)
                    else:
                        observer.on_next(one)
                if jobs:
                    running.add(jobs)

            return CompositeDisposable(
                source.subscribe(on_the_loop(observer, here, on_next, running.end), scheduler=here),
                Disposable(lambda: here.here(lambda: scope.detach(running))),
            )

        return behind(source, subscribe)

    return working_on(operator, concurrency)


def _let_all_go(items: Sequence[Job | Finished]) -> None:
    for item in items:
        let_go(item)


class _OneByOne(abc.ObserverBase[list[Finished]]):
    """Takes lists apart."""

    def __init__(self, observer: abc.ObserverBase[Finished]) -> None:
        self._observer = observer

    def on_next(self, value: list[Finished]) -> None:
        for one in value:
            self._observer.on_next(one)

    def on_error(self, error: Exception) -> None:
        self._observer.on_error(error)

    def on_completed(self) -> None:
        self._observer.on_completed()
