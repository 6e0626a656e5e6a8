"""Run jobs together: one call for a list of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable

from rxjobs.awaiting import Awaited
from rxjobs.decide import raised, resolve, returned
from rxjobs.demand import ended, let_go, now
from rxjobs.errors import InvalidOption
from rxjobs.events import Emit, JobStarted
from rxjobs.job import Job
from rxjobs.operators.stage import Operator, check_callable, check_count, items, on_the_loop
from rxjobs.outcome import COMPLETE, Finished, Outcome, Release
from rxjobs.perform import tell_end, waited
from rxjobs.scope import scope_here
from rxjobs.stopping import called, is_wish_to_stop

Handler = Callable[[list[Job]], Any]
Answer = None | Sequence[Outcome] | Mapping[int, Outcome]


def execute_batch(handler: Handler, *, concurrency: int = 1, timeout: float | None = None, name: str = "execute_batch") -> Operator:
    """Call `handler` with each list of jobs that a buffer made, `concurrency` of them at once; `timeout` in seconds.

    It returns None, all are complete; or outcomes in the order of the jobs; or `{job.id: outcome}`, where one that is not named is
    complete. When it raises, or takes longer, all of them fail, each by its own retry rule. A plain function runs in a thread.
    Without a `timeout` of its own it has the shortest of its jobs' types.

        ──[ab]──────[cd]──────
          execute_batch(write)
        ─────A─B───────C─D──
    """
    check_callable("execute_batch", "handler", handler)
    check_count("execute_batch", "concurrency", concurrency)
    if timeout is not None and timeout <= 0:
        raise InvalidOption(f"rj.execute_batch: timeout is a number of seconds above 0, or None, not {timeout!r}")

    def operator(source: Observable[Any]) -> Observable[Any]:
        def subscribe(observer: abc.ObserverBase[Any], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            scope = scope_here(scheduler)
            here = scope.scheduler

            async def work(jobs: list[Job]) -> list[Finished]:
                return await _perform(jobs, called(handler, timeout or _shortest(jobs)), scope.emit)

            running: Awaited[list[Job], list[Finished]] = Awaited(work, concurrency, _OneByOne(observer), here, _let_all_go)
            scope.watch(running)

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

        return Observable(subscribe)

    return operator


async def _perform(jobs: list[Job], call: Callable[[list[Job]], Awaitable[Any]], emit: Emit) -> list[Finished]:
    began = now()
    times = [waited(job, began) for job in jobs]
    for job, queue_time in zip(jobs, times, strict=True):
        emit(JobStarted(job=job.told, queue_time=queue_time, monotonic_time=began))
    outcomes = await _outcomes(jobs, call)
    duration = now() - began
    return [
        ended(job, tell_end(emit, job, outcome, queue_time, duration))
        for job, outcome, queue_time in zip(jobs, outcomes, times, strict=True)
    ]


def _shortest(jobs: list[Job]) -> float | None:
    """The shortest timeout of the jobs' types, seconds."""
    return min((job.definition.how.timeout for job in jobs if job.definition and job.definition.how.timeout), default=None)


async def _outcomes(jobs: list[Job], call: Callable[[list[Job]], Awaitable[Any]]) -> list[Outcome]:
    try:
        return _read(jobs, await call(jobs))
    except BaseException as error:  # the handler is a user's, and may raise anything
        if is_wish_to_stop(error):
            return [Release(reason="its run was stopped") for _ in jobs]
        return [raised(job, error) for job in jobs]


def _read(jobs: list[Job], answer: Answer) -> list[Outcome]:
    match answer:
        case None:
            return [COMPLETE for _ in jobs]
        case Mapping() if answer.keys() <= {job.id for job in jobs} and _are_outcomes(answer.values()):
            return [resolve(job, answer.get(job.id, COMPLETE)) for job in jobs]
        case Outcome():
            return [returned(job, answer) for job in jobs]
        case Sequence() if len(answer) == len(jobs) and _are_outcomes(answer):
            return [resolve(job, outcome) for job, outcome in zip(jobs, answer, strict=True)]
    raise TypeError(
        f"the handler of rj.execute_batch returns None, {len(jobs)} outcomes in the order of its jobs, or a mapping of their ids "
        f"to outcomes, not {answer!r:.200}"
    )


def _are_outcomes(values: Any) -> bool:
    return all(isinstance(value, Outcome) for value in values)


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
