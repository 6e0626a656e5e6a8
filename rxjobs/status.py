"""What a running node tells of itself with each heartbeat: read in the thread that keeps the lease, while the node goes on."""

from __future__ import annotations

import logging
import platform
import socket
from importlib.metadata import version
from typing import Any

import msgspec

from rxjobs.nodes import ExecutorStatus, NodeStatus, PipelineStatus
from rxjobs.runner import Running
from rxjobs.scope import Scope
from rxjobs.store.encoding import to_json
from rxjobs.vitals import NodeVitals
from rxjobs.witness import Witness

log = logging.getLogger("rxjobs.node")


TRIES = 3


class Status:
    """The status of one node."""

    def __init__(self, running: Running, witness: Witness) -> None:
        self.vitals: NodeVitals | None = None
        """Its numbers, once it has any."""
        self._running = running
        self._witness = witness
        self._about: dict[str, Any] = {
            "host": socket.gethostname()[:255],
            "rxjobs": version("rxjobs"),
            "python": platform.python_version(),
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
        witness = self._witness
        return NodeStatus(
            **self._about,
            **msgspec.structs.asdict(witness.machine),
            pipelines=tuple(_pipeline(scope) for scope in self._running.scopes),
            executors=() if self.vitals is None else tuple(ExecutorStatus(**one._asdict()) for one in self.vitals.executors),
            running=sum(len(scope.running) for scope in self._running.scopes),
            completed=witness.completed,
            failed=witness.failed,
            discarded=witness.discarded,
            last_job=witness.last_job,
        )


def _pipeline(scope: Scope) -> PipelineStatus:
    ledgers = tuple(scope.ledgers)
    queues = {queue for ledger in ledgers if isinstance(queue := getattr(ledger.source, "queue", None), str)}
    return PipelineStatus(
        name=scope.name,
        queues=tuple(sorted(queues)),
        held=sum(ledger.demand.held for ledger in ledgers),
        running=len(scope.running),
        is_paused=bool(ledgers) and all(ledger.is_paused for ledger in ledgers),
    )
