"""What the demo saw: the event stream of its app, and every job that came out of a pipeline."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from rxjobs.events import (
    BreakerChanged,
    BreakerRejected,
    Event,
    JobDropped,
    JobFailed,
    JobsEnqueued,
    JobStale,
    JobStopped,
    NodeJoined,
    NodeLost,
    PipelineRestarted,
    PipelineStarted,
)
from rxjobs.job import State
from rxjobs.outcome import Cancel, Complete, Discard, Finished, Outcome, Retry

ENDS: dict[type[Outcome], State] = {
    Complete: State.COMPLETED,
    Cancel: State.CANCELLED,
    Discard: State.DISCARDED,
}
"""The outcomes after which a job never runs again."""

RATE_SECONDS = 2.0


class Transition(msgspec.Struct, frozen=True):
    """A breaker that moved."""

    type: str
    before: str
    after: str


class Run(msgspec.Struct, frozen=True):
    """How long one attempt waited and took, seconds."""

    type: str
    waited: float
    took: float


class Witness:
    """Counts what it hears. It is told of everything on the event loop."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self.events: Counter[str] = Counter()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.ends: dict[int, list[State]] = {}
        self.transitions: list[Transition] = []
        self.runs: list[Run] = []
        self.ended_at = time.monotonic()
        """When the last job ended, by the monotonic clock."""
        self._say = say
        self._recent: deque[float] = deque()

    def hear(self, event: Event) -> None:
        """Take note of an event."""
        self.events[event.name] += 1
        match event:
            case JobStopped(job=job) | JobFailed(job=job):
                self.runs.append(Run(job.type, event.queue_time / 1e9, event.duration / 1e9))
            case BreakerChanged():
                self.transitions.append(Transition(event.type, event.before, event.after))
        if line := describe(event):
            self._say(line)

    def acked(self, finished: Finished) -> None:
        """Take note of an attempt whose outcome was written down."""
        job, outcome = finished.job, finished.outcome
        self.outcomes[job.type, type(outcome).__name__] += 1
        end = ENDS.get(type(outcome))
        if end is None:
            return
        self.ends.setdefault(job.id, []).append(end)
        self.ended_at = time.monotonic()
        self._recent.append(self.ended_at)
        if isinstance(outcome, Discard):
            self._say(f"dead letter: {job.type} {job.id}: {_short(outcome.reason)}")

    @property
    def dead_letters(self) -> int:
        """How many jobs were discarded."""
        return self._count("Discard")

    @property
    def retries(self) -> int:
        """How many attempts failed and were tried again."""
        return self._count("Retry")

    @property
    def rate(self) -> float:
        """How many jobs a second ended of late."""
        since = time.monotonic() - RATE_SECONDS
        while self._recent and self._recent[0] < since:
            self._recent.popleft()
        return len(self._recent) / RATE_SECONDS

    def _count(self, name: str) -> int:
        return sum(count for (_, outcome), count in self.outcomes.items() if outcome == name)


def describe(event: Event) -> str | None:
    """An event as a line to read; None for those that come by the thousand, or are told in another way."""
    match event:
        case JobsEnqueued(type=type_, queue=queue, count=count):
            return f"{count} jobs of {type_} entered the queue {queue}"
        case JobFailed(job=job, outcome=Retry(delay=delay), error=error):
            return f"{job.type} {job.id} failed, attempt {job.attempt}, next in {delay or 0:.1f} s: {_short(error.message)}"
        case BreakerChanged(type=type_, before=before, after=after):
            return f"breaker of {type_}: {before} → {after}"
        case BreakerRejected(job=job):
            return f"{job.type} {job.id} waits for its breaker"
        case PipelineStarted(pipeline=pipeline):
            return f"pipeline {pipeline} started"
        case PipelineRestarted(pipeline=pipeline, error=error, delay=delay):
            return f"pipeline {pipeline} broke, next in {delay:.1f} s: {error.type}: {_short(error.message)}"
        case JobDropped(job=job, reason=reason):
            return f"{job.type} {job.id} was dropped: {reason}"
        case JobStale(job=job):
            return f"the outcome of {job.type} {job.id} came too late"
        case NodeJoined(node=node):
            return f"node {node[:8]} joined"
        case NodeLost(node=node):
            return f"node {node[:8]} lost its lease"
    return None


def timed(line: str) -> str:
    """The line behind the time of day."""
    return f"{datetime.now().astimezone():%H:%M:%S} {line}"


def _short(text: Any) -> str:
    first = str(text).partition("\n")[0]
    return first if len(first) <= 100 else f"{first[:99]}…"
