"""Where a pipeline runs: its loop, where it tells what happens, and how it is stopped."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from reactivex import abc
from reactivex.disposable import Disposable

from rxjobs.awaiting import LoopScheduler, scheduler_here
from rxjobs.calls import Executor
from rxjobs.counted import Counted
from rxjobs.demand import Demand, let_go
from rxjobs.events import Emit, Event
from rxjobs.hold import CANCELLED, Tenure
from rxjobs.job import Job
from rxjobs.ledger import Ledger
from rxjobs.source import Source

T = TypeVar("T")

FIRST_RESTART, LONGEST_RESTART = 0.5, 30.0
MAX_RESTARTS, RESTART_WINDOW = 5, 60.0


class Working(Protocol):
    """What a stage works on, and what waits there for its turn."""

    @property
    def running(self) -> list[Any]: ...

    @property
    def waiting(self) -> Sequence[Any]: ...

    def let_go_of_waiting(self, which: Callable[[Any], bool]) -> None: ...

    def stop(self, which: Callable[[Any], bool]) -> None: ...

    def detach(self, *, cancel: bool) -> None: ...

    def leave_behind(self) -> None: ...


class Restarts:
    """How often something broke of late, and after how many seconds it is to be tried again: later each time."""

    def __init__(self, most: int, window: float) -> None:
        self.window = window
        self._most = most
        self._at: deque[float] = deque()

    def delay(self, now: float) -> float | None:
        """It broke, at `now` seconds: after how many it is tried again, or None where it broke too often."""
        while self._at and self._at[0] < now - self.window:
            self._at.popleft()
        if len(self._at) >= self._most:
            return None
        delay: float = min(LONGEST_RESTART, FIRST_RESTART * 2 ** len(self._at))
        self._at.append(now)
        return delay * random.uniform(1.0, 1.1)  # noqa: S311 - jitter

    @property
    def count(self) -> int:
        """How often it was tried again within the window."""
        return len(self._at)


class Scope:
    """The surroundings of one pipeline, the same through all its restarts; the stages find it when they are subscribed."""

    def __init__(
        self,
        scheduler: LoopScheduler,
        emit: Emit,
        *,
        supervised: bool,
        name: str = "",
        max_restarts: int = MAX_RESTARTS,
        restart_window: float = RESTART_WINDOW,
        tenure: Tenure | None = None,
    ) -> None:
        self.scheduler: LoopScheduler = _ScopeScheduler(scheduler, self)
        self.emit = emit
        self.name = name
        """The pipeline's."""
        self.cancels = not supervised
        """Whether a stage that is disposed stops what it runs: not while a supervisor may subscribe again."""
        self.stopping = False
        self.is_breaking = False
        """Whether the pipeline has just broken: what is let go now was dropped by no operator."""
        self.executors: set[Executor] = set()
        """What the stages run things on, to be closed with the app."""
        self._stages: dict[Counted, None] = {}
        self._stops: list[Callable[[], object]] = []
        self._max_restarts = max_restarts
        self._tenure = tenure
        self._restart_window = restart_window
        self._awaited: WeakSet[Working] = WeakSet()
        self._ledgers: dict[Hashable, Ledger] = {}
        self._kept: dict[Hashable, Any] = {}
        self._seen: list[list[Ledger]] = []

    def ledger(self, key: Hashable, source: Source, demand: Callable[[], Demand]) -> Ledger:
        """The ledger of one pull. It outlives a restart, since the jobs it holds do."""
        if key not in self._ledgers:
            self._ledgers[key] = Ledger(source, demand(), self.scheduler, self.emit, self._tenure)
        for seen in self._seen:
            seen.append(self._ledgers[key])
        return self._ledgers[key]

    @contextmanager
    def seeing_pulls(self) -> Iterator[list[Ledger]]:
        """Which pulls are subscribed inside: those that a stage is behind, whatever operators are between."""
        seen: list[Ledger] = []
        self._seen.append(seen)
        try:
            yield seen
        finally:
            self._seen = [one for one in self._seen if one is not seen]

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """What an operator keeps through restarts of the pipeline, or of a branch: made when it is asked for first."""
        if key not in self._kept:
            self._kept[key] = make()
        kept: T = self._kept[key]
        return kept

    def count(self, counted: Counted) -> None:
        """Have what passes through a stage shown with its pipeline."""
        self._stages[counted] = None

    @property
    def stages(self) -> list[Counted]:
        """What passes through its stages, from the first to the last: they are subscribed from the end."""
        return list(self._stages)[::-1]

    def restarts(self) -> Restarts:
        """How often a part of the pipeline may break: as often as the pipeline itself."""
        return Restarts(self._max_restarts, self._restart_window)

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

    def watch(self, awaited: Working) -> None:
        """Have what a stage runs stopped with the pipeline, also after the stage is disposed."""
        self._awaited.add(awaited)

    def detach(self, awaited: Working) -> None:
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

    def cancel(self, claims: frozenset[tuple[int, int]]) -> None:
        """Stop what runs for jobs that are to be cancelled, given by their ids and attempts; what has not begun never does.

        What runs for several jobs is stopped when that is asked for all of them. A list that waits goes on without such a job.
        """
        for ledger in self._ledgers.values():
            ledger.cancelling = claims
        for awaited in tuple(self._awaited):
            for job in [job for item in awaited.running for job in _jobs_of(item) if job.hold is not None]:
                job.hold.cancelled = job.hold.cancelled or job.hold.is_to_be_cancelled
            for jobs in [item for item in awaited.waiting if isinstance(item, list)]:
                gone = [job for job in jobs if _is_to_be_cancelled(job)]
                jobs[:] = [job for job in jobs if not _is_to_be_cancelled(job)]
                for job in gone:
                    let_go(job, CANCELLED)
            awaited.stop(lambda item: all(map(_is_to_be_cancelled, _jobs_of(item))))

    def recall(self, ledger: Ledger) -> None:
        """Release the jobs of a pull that wait for their turn in a stage; what runs may end."""
        for awaited in tuple(self._awaited):
            awaited.let_go_of_waiting(lambda item: any(job.hold is not None and job.hold.root is ledger for job in _jobs_of(item)))

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
    def ending_ids(self) -> set[int]:
        """The ids of those of them whose outcomes are on their way to be written down."""
        return set().union(*(ledger.ending_ids for ledger in self._ledgers.values()))

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
        super().__init__(scheduler.loop, scheduler.began)
        self.scope = scope


def scope_here(scheduler: abc.SchedulerBase | None = None) -> Scope:
    """The scope of the pipeline that is being subscribed; without a runner, one of its own on the running loop."""
    found = scheduler.scope if isinstance(scheduler, _ScopeScheduler) else _scope.get(None)
    return found if found is not None else Scope(scheduler_here(scheduler), _unheard, supervised=False)


def _is_to_be_cancelled(job: Job) -> bool:
    return job.hold is not None and job.hold.is_to_be_cancelled


def _jobs_of(item: Job | list[Job]) -> list[Job]:
    return item if isinstance(item, list) else [item]


def _unheard(event: Event) -> None:
    """Where events of a pipeline without an app go."""
