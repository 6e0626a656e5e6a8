"""What a node has seen of its jobs, and how it does: kept with a job that is discarded, and told with each heartbeat."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import Context
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from rxjobs.executors.memory import resident
from rxjobs.failure import Failure, clean
from rxjobs.job import Job
from rxjobs.log_lines import logger
from rxjobs.middleware.circuits import Circuits
from rxjobs.outcome import Complete, Discard, Finished, Retry
from rxjobs.stopping import spawn
from rxjobs.store.store import Store

log = logger("rxjobs.witness")

ERRORS = 5
"""How many of the last errors of a job type are kept, and how long their messages may be."""
MESSAGE_MOST = 500
COUNTED = 10_000
"""Ready jobs of a queue are counted up to here."""
FRESH_SECONDS = 10.0
"""Depths that are older are looked for anew when a job is discarded."""
PATIENCE_SECONDS = 0.5
"""For so long an outcome waits for them to be found."""
LOOK_SECONDS = 5.0


class JobSeen(msgspec.Struct, frozen=True):
    """A job that ended on a node, and when, by the node's clock."""

    id: int
    type: str
    at: datetime


class Machine(msgspec.Struct, frozen=True):
    """How the process and its machine do."""

    load: tuple[float, ...] | None
    """The machine's load over 1, 5 and 15 minutes; None where the system does not tell."""
    cpus: int
    memory: int
    """Bytes that the process takes."""
    loop_delay: float | None
    """The longest that its event loop took to answer within the last ten seconds, in seconds; None where it was not asked yet."""


class Depth(msgspec.Struct, frozen=True):
    """How many jobs of a queue were ready, counted up to COUNTED, and for how many seconds the oldest had been."""

    ready: int
    oldest: float | None


class _Error(NamedTuple):
    job: int
    attempt: int
    type: str
    message: str
    at: float
    """By this process's own clock."""


class Node(Protocol):
    """What is asked of the process that it is a witness of."""

    @property
    def label(self) -> str: ...

    @property
    def store(self) -> Store: ...

    @property
    def circuits(self) -> Circuits: ...


class Witness:
    """What this process knows without asking anybody; but for the depths of its queues, looked for at most once in ten seconds."""

    def __init__(self, node: Node, queues: Collection[str]) -> None:
        self.completed = 0
        self.failed = 0
        """Attempts, of which some were the last ones."""
        self.discarded = 0
        self.failed_of: Counter[str] = Counter()
        """Attempts that failed, by queue."""
        self.loop_delay: Callable[[], float | None] = lambda: None
        self._node = node
        self._queues = queues
        self._last: tuple[int, str, float] | None = None
        self._errors: defaultdict[str, deque[_Error]] = defaultdict(lambda: deque(maxlen=ERRORS))
        self._depths: dict[str, Depth] | None = None
        self._looked_at: float | None = None
        self._looking: asyncio.Task[None] | None = None

    @property
    def last_job(self) -> JobSeen | None:
        """The job that ended last."""
        if self._last is None:
            return None
        id_, type_, at = self._last
        return JobSeen(id_, type_, datetime.fromtimestamp(at, UTC))

    @property
    def machine(self) -> Machine:
        """How the process and its machine do now."""
        try:
            load = tuple(round(one, 2) for one in os.getloadavg())
        except (OSError, AttributeError):  # Windows has none
            load = None
        delay = self.loop_delay()
        return Machine(load, os.cpu_count() or 1, resident(), None if delay is None else round(delay, 4))

    def saw(self, finished: Sequence[Finished]) -> bool:
        """Note how jobs ended; gives whether any of them is discarded."""
        if not finished:
            return False
        last = finished[-1].job
        self._last = last.id, last.type, time.time()
        unwell = [one for one in finished if type(one.outcome) is not Complete]
        self.completed += len(finished) - len(unwell)
        discarded = 0
        for one in unwell:
            if isinstance(one.outcome, Retry | Discard):
                self.failed += 1
                self.failed_of[one.job.queue] += 1
                discarded += isinstance(one.outcome, Discard)
                self._note(one.job, one.outcome.failure or _asked(one.outcome))
        self.discarded += discarded
        return discarded > 0

    async def depths(self) -> Mapping[str, Depth] | None:
        """How deep the queues of this process are, as was last seen; None where that could not be found in time."""
        is_looking = self._looking is not None and not self._looking.done()
        if not is_looking and (self._looked_at is None or time.monotonic() >= self._looked_at + FRESH_SECONDS):
            self._looking = spawn(asyncio.get_running_loop(), self._look(), Context())
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=PATIENCE_SECONDS)
        return self._depths

    async def of(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        """What is known at the moment that these jobs are discarded, of each."""
        depths = await self.depths()
        shared = {
            "node": self._node.label,
            "queue_depths": None if depths is None else {queue: msgspec.structs.asdict(one) for queue, one in depths.items()},
            **msgspec.structs.asdict(self.machine),
        }
        breakers, now = self._node.circuits.states(), time.monotonic()
        return [
            {
                **shared,
                "recent_errors": self._recent(job.type, now),
                "breaker": breakers.get(job.type),
                "args_bytes": len(job.payload.encode()),
            }
            for job in jobs
        ]

    async def finish(self) -> None:
        """Look no more."""
        if self._looking is not None and not self._looking.done():
            self._looking.cancel()
            await asyncio.wait([self._looking], timeout=PATIENCE_SECONDS)

    def _note(self, job: Job, failure: Failure) -> None:
        message = clean(failure.message, MESSAGE_MOST)
        self._errors[job.type].append(_Error(job.id, job.attempt, failure.type, message, time.monotonic()))

    def _recent(self, type_: str, now: float) -> list[dict[str, Any]]:
        """The last errors of a job type here, the latest first."""
        return [
            {
                "job": one.job,
                "attempt": one.attempt,
                "type": one.type,
                "message": one.message,
                "seconds_ago": round(now - one.at, 3),
            }
            for one in reversed(self._errors.get(type_, ()))
        ]

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                rows = await self._node.store.ready_depths(sorted(self._queues), COUNTED)
            self._depths = {row["queue"]: Depth(row["jobs"], row["oldest"]) for row in rows}
        except Exception as error:  # what is asked for besides must not cost an outcome
            self._depths = None
            log.debug("the depths of queues could not be found: %s", error)
        self._looked_at = time.monotonic()


def _asked(outcome: Retry | Discard) -> Failure:
    try:
        message = str(outcome.reason)
    except Exception:  # a job may give anything for a reason
        message = ""
    return Failure(f"rxjobs.{type(outcome).__name__}", message)
