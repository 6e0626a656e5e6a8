"""What a running node tells of itself with each heartbeat: read in the thread that keeps the lease, while the node goes on."""

from __future__ import annotations

import platform
import socket
import time
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import msgspec

from rxjobs.counted import Counted
from rxjobs.log_lines import logger
from rxjobs.nodes import ExecutorStatus, NodeStatus, PipelineStatus, StageStatus
from rxjobs.runner import Running
from rxjobs.scope import Scope
from rxjobs.store.encoding import to_json
from rxjobs.vitals import NodeVitals
from rxjobs.witness import Witness

log = logger("rxjobs.node")


TRIES = 3
MOST_PIPELINES, MOST_STAGES, LONGEST_NAME = 200, 50, 100
"""What is told is bounded, however much is declared."""
SHORTEST = 0.05
"""Seconds between two looks in which a rate says something."""


class Status:
    """The status of one node."""

    def __init__(self, running: Running, witness: Witness, lease_seconds: float | None = None) -> None:
        self.vitals: NodeVitals | None = None
        """Its numbers, once it has any."""
        self._running = running
        self._witness = witness
        self._rates = Rates(time.monotonic)
        self._about: dict[str, Any] = {
            "host": socket.gethostname()[:255],
            "rxjobs": version("rxjobs"),
            "python": platform.python_version(),
            "lease_seconds": lease_seconds,
        }

    def told(self) -> str | None:
        """All of it as JSON; None where it could not be put together, which must not cost the lease."""
        for _ in range(TRIES):  # a pipeline may change in the very moment that it is looked at
            try:
                return to_json(self._now()).decode()
            except Exception as error:
                log.debug("what this node tells of itself could not be put together: %r", error)
        return None

    def _now(self) -> NodeStatus:
        witness, rates = self._witness, self._rates
        rates.look()
        status = NodeStatus(
            **self._about,
            **msgspec.structs.asdict(witness.machine),
            pipelines=tuple(_pipeline(scope, rates, witness) for scope in self._running.scopes[:MOST_PIPELINES]),
            executors=() if self.vitals is None else tuple(ExecutorStatus(**one._asdict()) for one in self.vitals.executors),
            running=sum(len(scope.running) for scope in self._running.scopes),
            completed=witness.completed,
            failed=witness.failed,
            discarded=witness.discarded,
            last_job=witness.last_job,
        )
        rates.keep()
        return status


class Rates:
    """How fast counters grow: by how much since the look before, a second. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._before: tuple[float, dict[object, int]] | None = None
        self._now: tuple[float, dict[object, int]] = (clock(), {})

    def look(self) -> None:
        """Begin a look at the counters."""
        self._now = (self._clock(), {})

    def of(self, key: object, count: int) -> float | None:
        """How fast the counter of a key, which stands at `count`, has grown; None where it was not looked at before."""
        at, counts = self._now
        counts[key] = count
        if self._before is None or key not in self._before[1]:
            return None
        return round(max(0, count - self._before[1][key]) / max(SHORTEST, at - self._before[0]), 2)

    def keep(self) -> None:
        """Measure from here the next time, unless this look was but a moment after the one before."""
        if self._before is None or self._now[0] - self._before[0] >= SHORTEST:
            self._before = self._now


def _pipeline(scope: Scope, rates: Rates, witness: Witness) -> PipelineStatus:
    ledgers = tuple(scope.ledgers)
    acked, known = Counter[str](), set[str]()
    for ledger in ledgers:
        queue = getattr(ledger.source, "queue", None)
        if isinstance(queue, str):
            known.add(queue)
            acked[queue] += ledger.acked
    queues = sorted(known)
    by_queue = {queue: rate for queue in queues if (rate := rates.of((scope, queue), acked[queue])) is not None}
    return PipelineStatus(
        name=scope.name[:LONGEST_NAME],
        queues=tuple(queues),
        max_demand=sum(ledger.demand.max_demand for ledger in ledgers),
        demand=0 if scope.stopping else sum(ledger.wanted for ledger in ledgers),
        pending=sum(ledger.pending for ledger in ledgers),
        failed=sum(witness.failed_of[queue] for queue in queues),
        rate=rates.of(scope, sum(ledger.acked for ledger in ledgers)),
        rates=by_queue,
        stages=tuple(_stage(one, rates) for one in scope.stages[:MOST_STAGES]),
        held=sum(ledger.demand.held for ledger in ledgers),
        running=len(scope.running),
        is_paused=bool(ledgers) and all(ledger.is_paused for ledger in ledgers),
    )


def _stage(one: Counted, rates: Rates) -> StageStatus:
    return StageStatus(
        name=one.name[:LONGEST_NAME],
        rate=rates.of(one, one.went_in),
        running=one.running,
        waiting=one.waiting,
        limit=one.limit,
        errors=one.errors,
        dropped=one.dropped,
    )
