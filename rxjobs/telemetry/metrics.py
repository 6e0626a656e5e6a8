"""Metrics, from what is heard on the event stream. Most are plain integers, which are only read when somebody collects."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache
from typing import Any
from weakref import WeakSet

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation

from rxjobs.events import BreakerRejected, Event, JobFailed, JobStale, JobStarted, JobStopped, QueueStalled
from rxjobs.failure import Failure
from rxjobs.job import Job
from rxjobs.outcome import Outcome
from rxjobs.telemetry import names
from rxjobs.telemetry.attempt import attempt_of, begin, outcome_name
from rxjobs.telemetry.providers import Telemetry, is_set, meter_of

RECENT_SECONDS = 30.0
"""How long an observed depth is told: a node that looks no more must not tell old numbers."""

Depths = Mapping[tuple[str, str], int]
"""How many jobs stand in each queue and state."""


class Metrics:
    """The metrics of one app: a listener of its events, and told now and then how deep the queues are."""

    def __init__(self, kinds: Container[str], telemetry: Telemetry, clock: Callable[[], float] = time.monotonic) -> None:
        self._kinds = kinds
        self._provider = telemetry.meter_provider
        self._clock = clock
        self._instruments = _instruments(telemetry.meter_provider)
        self._instruments.apps.add(self)
        self._depths: dict[tuple[str, str], int] = {}
        self._observed = float("-inf")
        self._found: dict[tuple[str, str], Counts] = {}

    def hear(self, event: Event) -> None:
        """Count what happened."""
        match event:
            case JobStarted():
                counts = self._counts(event.job)
                counts.active += 1
                self._instruments.queue_duration.record(event.queue_time / 1e9, counts.queue)
            case JobStopped():
                self._end(event.job, event.outcome, event.duration)
            case JobFailed():
                self._end(event.job, event.outcome, event.duration, event.error)
            case BreakerRejected():
                (attempt_of(event.job) or begin(event.job)).is_rejected = True
            case JobStale():
                self._instruments.stale[event.job.queue] += 1
            case QueueStalled():
                self._instruments.stalled[event.queue] += 1
            case _:
                pass

    @property
    def is_watching(self) -> bool:
        """Whether anybody may collect: if not, the depth of the queues need not be looked at."""
        return self._provider is not None or is_set(metrics.get_meter_provider())

    def observe(self, depths: Depths) -> None:
        """Take note of the queues' depths. One that was seen before and is gone is empty now."""
        self._depths = {**dict.fromkeys(self._depths, 0), **depths}
        self._observed = self._clock()

    @property
    def recent_depths(self) -> Depths:
        """The depths, if they were observed a short while ago."""
        return self._depths if self._clock() - self._observed <= RECENT_SECONDS else {}

    def _end(self, job: Job, outcome: Outcome, duration: int, failure: Failure | None = None) -> None:
        counts, attempt = self._counts(job), attempt_of(job)
        counts.active -= 1
        name = outcome_name(outcome, attempt)
        counts.attempts[name] = counts.attempts.get(name, 0) + 1
        self._instruments.process_duration.record(
            duration / 1e9,
            counts.succeeded if failure is None else self._instruments.failed(counts, failure),
            None if attempt is None else attempt.context,
        )

    def _counts(self, job: Job) -> Counts:
        counts = self._found.get((job.queue, job.type))
        if counts is None:
            counts = self._instruments.counts(job.queue, job.type if job.type in self._kinds else names.OTHER)
            if job.type in self._kinds:
                self._found[job.queue, job.type] = counts
        return counts


class Counts:
    """What is counted of one job type in one queue, and the attributes that go with it."""

    __slots__ = ("active", "attempts", "attributes", "failed", "kind", "queue", "succeeded")

    def __init__(self, queue: str, kind: str) -> None:
        self.kind = kind
        self.active = 0
        self.attempts: dict[str, int] = {}
        self.queue = {names.DESTINATION: queue}
        self.attributes = {names.DESTINATION: queue, names.KIND: kind}
        self.succeeded = {names.MESSAGING_SYSTEM: names.SYSTEM, names.OPERATION_NAME: names.PROCESS, **self.attributes}
        self.failed: dict[str, dict[str, str]] = {}


class Instruments:
    """The instruments of one meter. The apps of a process share them, since a meter has each name once."""

    def __init__(self, meter: Meter) -> None:
        self.apps: WeakSet[Metrics] = WeakSet()
        self.process_duration = _histogram(meter, names.PROCESS_DURATION)
        self.queue_duration = _histogram(meter, names.QUEUE_DURATION)
        self._all: dict[tuple[str, str], Counts] = {}
        self.stale: Counter[str] = Counter()
        self.stalled: Counter[str] = Counter()
        self._error_types: dict[str, set[str]] = {}
        meter.create_observable_counter(names.ATTEMPTS.name, [self._attempts], *names.ATTEMPTS[1:3])
        for metric, counted in ((names.STALE, self.stale), (names.STALLED, self.stalled)):
            meter.create_observable_counter(metric.name, [_by_queue(counted)], *metric[1:3])
        meter.create_observable_up_down_counter(names.ACTIVE.name, [self._active], *names.ACTIVE[1:3])
        meter.create_observable_up_down_counter(names.DEPTH.name, [self._depth], *names.DEPTH[1:3])

    def counts(self, queue: str, kind: str) -> Counts:
        """What is counted of a job type in a queue."""
        counts = self._all.get((queue, kind))
        if counts is None:
            counts = self._all[queue, kind] = Counts(queue, kind)
        return counts

    def failed(self, counts: Counts, failure: Failure) -> dict[str, str]:
        """The attributes of a failed attempt; a job type has no more than so many kinds of errors, whatever it raises."""
        attributes = counts.failed.get(failure.type)
        if attributes is None:
            known = self._error_types.setdefault(counts.kind, set())
            if failure.type not in known and len(known) >= names.ERROR_TYPES:
                return {**counts.succeeded, names.ERROR_TYPE: names.OTHER}
            known.add(failure.type)
            attributes = counts.failed[failure.type] = {**counts.succeeded, names.ERROR_TYPE: failure.type}
        return attributes

    # read on the collecting thread, while the loop goes on counting: hence the copies

    def _attempts(self, _: CallbackOptions) -> Iterable[Observation]:
        for counts in list(self._all.values()):
            for outcome, count in list(counts.attempts.items()):
                yield Observation(count, {**counts.attributes, names.OUTCOME: outcome})

    def _active(self, _: CallbackOptions) -> Iterable[Observation]:
        for counts in list(self._all.values()):
            yield Observation(counts.active, counts.attributes)

    def _depth(self, _: CallbackOptions) -> Iterable[Observation]:
        # two apps on one database have both seen the same jobs, so their depths are not added up
        depths = {key: jobs for app in list(self.apps) for key, jobs in app.recent_depths.items()}
        for (queue, state), jobs in depths.items():
            yield Observation(jobs, {names.DESTINATION: queue, names.STATE: state})


def _by_queue(counted: Counter[str]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda _: [Observation(count, {names.DESTINATION: queue}) for queue, count in list(counted.items())]


@cache
def _instruments(provider: MeterProvider | None) -> Instruments:
    return Instruments(meter_of(provider))


def _histogram(meter: Meter, metric: names.Metric) -> Histogram:
    bounds: Any = metric.bounds
    return meter.create_histogram(metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=bounds)
