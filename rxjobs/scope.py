"""Where a pipeline runs: its loop, where it tells what happens, and how it is stopped."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

from reactivex import abc
from reactivex.disposable import Disposable

from rxjobs.awaiting import Awaited, LoopScheduler, scheduler_here
from rxjobs.call import Executor
from rxjobs.demand import Demand, Ledger, Source
from rxjobs.events import Emit, Event
from rxjobs.job import Job


class Scope:
    """The surroundings of one pipeline, the same through all its restarts; the stages find it when they are subscribed."""

    def __init__(self, scheduler: LoopScheduler, emit: Emit, *, supervised: bool) -> None:
        self.scheduler: LoopScheduler = _ScopeScheduler(scheduler, self)
        self.emit = emit
        self.cancels = not supervised
        """Whether a stage that is disposed stops what it runs: not while a supervisor may subscribe again."""
        self.stopping = False
        self.is_breaking = False
        """Whether the pipeline has just broken: what is let go now was dropped by no operator."""
        self.executors: set[Executor] = set()
        """What the stages run things on, to be closed with the app."""
        self._stops: list[Callable[[], object]] = []
        self._awaited: WeakSet[Awaited[Any, Any]] = WeakSet()
        self._ledgers: dict[Hashable, Ledger] = {}

    def ledger(self, key: Hashable, source: Source, demand: Callable[[], Demand]) -> Ledger:
        """The ledger of one pull. It outlives a restart, since the jobs it holds do."""
        if key not in self._ledgers:
            self._ledgers[key] = Ledger(source, demand(), self.scheduler, self.emit)
        return self._ledgers[key]

    def on_stop(self, stop: Callable[[], object]) -> abc.DisposableBase:
        """Have something told to end by itself when the pipeline is to stop, unless disposed before."""
        if self.stopping:
            stop()
        else:
            self._stops.append(stop)
        return Disposable(lambda: self._stops.remove(stop) if stop in self._stops else None)

    def stop(self) -> None:
        """End the sources: the pipeline completes after its last ack."""
        self.stopping = True
        stops, self._stops = self._stops, []
        for stop in stops:
            stop()

    def watch(self, awaited: Awaited[Any, Any]) -> None:
        """Have what a stage runs stopped with the pipeline, also after the stage is disposed."""
        self._awaited.add(awaited)

    def detach(self, awaited: Awaited[Any, Any]) -> None:
        """Have a stage that is disposed emit nothing more; what it runs is stopped, if not now, then with the pipeline."""
        awaited.detach(cancel=self.cancels)

    def kill(self) -> None:
        """Stop what is running, also for stages that were disposed before."""
        self.cancels = True
        for awaited in tuple(self._awaited):
            awaited.detach(cancel=True)

    def cut_off(self) -> None:
        """Give up the jobs that are held under a lease: what runs is stopped, what has not begun never does."""
        for ledger in self._ledgers.values():
            ledger.cut_off()
        for awaited in tuple(self._awaited):
            awaited.stop(lambda item: any(job.node is not None for job in _jobs_of(item)))

    def recall(self, ledger: Ledger) -> None:
        """Release the jobs of a pull that wait for their turn in a stage; what runs may end."""
        for awaited in tuple(self._awaited):
            awaited.let_go_of_waiting(
                lambda item: any(job.hold is not None and job.hold.ledger is ledger for job in _jobs_of(item))
            )

    def close(self) -> None:
        """Wait no longer for what does not stop, and write nothing down any more."""
        for ledger in self._ledgers.values():
            ledger.close()
        for awaited in tuple(self._awaited):
            awaited.leave_behind()

    @property
    def running(self) -> list[Job]:
        """The jobs that a stage works on."""
        return [job for awaited in tuple(self._awaited) for item in awaited.running for job in _jobs_of(item)]

    @property
    def held_ids(self) -> set[int]:
        """The ids of the jobs that are fetched and not yet acked."""
        return set().union(*(ledger.held_ids for ledger in self._ledgers.values()))

    @property
    def ledgers(self) -> list[Ledger]:
        """What its pulls hold."""
        return list(self._ledgers.values())

    @property
    def is_fetching(self) -> bool:
        """Whether a source was asked and has not answered."""
        return any(ledger.is_fetching for ledger in self._ledgers.values())

    @property
    def is_idle(self) -> bool:
        """Whether no job is fetched, nor about to be, that is not yet acked."""
        return all(ledger.is_idle for ledger in self._ledgers.values())


_scope: ContextVar[Scope] = ContextVar("rxjobs_scope")


@contextmanager
def within(scope: Scope) -> Iterator[None]:
    """Subscribe what is inside within a scope."""
    token = _scope.set(scope)
    try:
        yield
    finally:
        _scope.reset(token)


class _ScopeScheduler(LoopScheduler):
    """Carries the scope to stages that are subscribed late, such as the second source of a concat."""

    def __init__(self, scheduler: LoopScheduler, scope: Scope) -> None:
        super().__init__(scheduler.loop)
        self.scope = scope


def scope_here(scheduler: abc.SchedulerBase | None = None) -> Scope:
    """The scope of the pipeline that is being subscribed; without a runner, one of its own on the running loop."""
    found = scheduler.scope if isinstance(scheduler, _ScopeScheduler) else _scope.get(None)
    return found if found is not None else Scope(scheduler_here(scheduler), _unheard, supervised=False)


def _jobs_of(item: Job | list[Job]) -> list[Job]:
    return item if isinstance(item, list) else [item]


def _unheard(event: Event) -> None:
    """Where events of a pipeline without an app go."""
