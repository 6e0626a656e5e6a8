"""A running node in plain numbers, for whoever collects metrics: read from another thread while the node goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rxjobs.calls import Executor
from rxjobs.event_stream import EventStream
from rxjobs.ledger import Ledger
from rxjobs.runner import Running
from rxjobs.scope import Scope
from rxjobs.services.lead import Leadership
from rxjobs.store.database import Database
from rxjobs.store.listener import Listener
from rxjobs.telemetry import names
from rxjobs.telemetry.vitals import ExecutorVitals, NotifyVitals, PoolVitals, QueueVitals, ServerVitals, StageVitals

EXECUTORS = {"loop": names.ON_LOOP, "thread": names.IN_THREAD, "process": names.IN_PROCESS, "pool": names.IN_POOL}


class NodeVitals:
    """The numbers of one node. Nothing here waits, asks the database, or changes anything."""

    def __init__(
        self,
        running: Running,
        leadership: Leadership,
        database: Database,
        listener: Listener | None,
        channel: str,
        breakers: Callable[[], Mapping[str, str]],
        events: EventStream,
    ) -> None:
        self._running = running
        self._leadership = leadership
        self._database = database
        self._listener = listener
        self._channel = channel
        self._breakers = breakers
        self._events = events
        self._server = ServerVitals(0.0, 0.0)

    @property
    def is_leading(self) -> bool:
        """Whether this node leads, as far as it can know."""
        return self._leadership.term is not None

    @property
    def queues(self) -> Iterator[QueueVitals]:
        """The queues that it takes jobs from."""
        for scope in self._running.scopes:
            for ledger in scope.ledgers:
                queue = getattr(ledger.source, "queue", None)
                if isinstance(queue, str):
                    outstanding = 0 if scope.stopping else ledger.wanted
                    yield QueueVitals(queue, _most_running(scope, ledger), ledger.is_paused, outstanding, ledger.pending)

    @property
    def stages(self) -> Iterator[StageVitals]:
        """Its stages."""
        for scope in self._running.scopes:
            most = sum(ledger.demand.max_demand for ledger in scope.ledgers)
            for one in scope.stages:
                limit = (one.room or most) if one.working else 0
                yield StageVitals(one.name, one.went_in, one.went_out, one.dropped, one.errors, one.waiting, limit)

    @property
    def executors(self) -> Iterator[ExecutorVitals]:
        """What its jobs run on. What runs nowhere else, runs on the loop."""
        elsewhere = 0
        for executor in self._running.executors:
            if (one := _vitals(executor)) is not None:
                elsewhere += one.usage + one.waiting
                yield one
        runs = sum(len(scope.running) for scope in self._running.scopes)
        most = sum(one.limit for one in self.queues)
        yield ExecutorVitals(names.ON_LOOP, max(0, runs - elsewhere), most, 0)

    @property
    def pools(self) -> Iterable[PoolVitals]:
        """Its connections."""
        return [PoolVitals(*pool) for pool in self._database.pools]

    @property
    def notify(self) -> NotifyVitals | None:
        """The connection that listens; None where nothing is to be heard."""
        if self._listener is None:
            return None
        listener = self._listener
        return NotifyVitals(self._channel, listener.is_connected, max(0, listener.connections - 1), listener.messages)

    @property
    def server(self) -> ServerVitals | None:
        """The server that it looks at while it leads."""
        return self._server if self.is_leading else None

    def saw_notifications(self, usage: float) -> None:
        """So large a part of the room for notifications is taken."""
        self._server = self._server._replace(notifications=usage)

    def saw_horizon(self, age: float) -> None:
        """The vacuum horizon has been pinned for so many seconds."""
        self._server = self._server._replace(horizon=age)

    @property
    def breakers(self) -> Mapping[str, str]:
        """The state of each job type's breaker."""
        return {name: state.replace("-", "_") for name, state in self._breakers().items()}

    @property
    def listener_failures(self) -> Mapping[str, int]:
        """How often a listener of events raised, by event."""
        return dict(self._events.failures)


def _most_running(scope: Scope, ledger: Ledger) -> int:
    """How many of a source's jobs may run at once: as many as the stages that run them work on, and no more than are held."""
    most = sum(one.limit for counted in scope.stages if counted.runs_jobs for one in tuple(counted.working))
    return min(most, ledger.demand.max_demand) if most else ledger.demand.max_demand


def _vitals(executor: Executor) -> ExecutorVitals | None:
    busy: Any = getattr(executor, "busy", None)
    size: Any = getattr(executor, "size", None)
    if busy is None:
        return None
    return ExecutorVitals(EXECUTORS.get(executor.name, names.IN_POOL), busy, size, getattr(executor, "waiting", 0))
