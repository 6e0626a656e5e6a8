"""Metrics, from what is heard on the event stream and what a running node is asked for when somebody collects."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from functools import cache
from operator import attrgetter

from opentelemetry import metrics
from opentelemetry.metrics import MeterProvider

from rxjobs.definition import NewJob
from rxjobs.enqueued import Enqueued
from rxjobs.events import (
    BreakerChanged,
    BreakerRejected,
    Event,
    JobFailed,
    JobsAcked,
    JobsEnqueued,
    JobsRescued,
    JobStale,
    JobStarted,
    JobStopped,
    LeaderLost,
    LeaderWon,
    MaintenanceEnded,
    QueueFetched,
    QueueStalled,
    StageWorked,
)
from rxjobs.failure import Failure, qualified_name
from rxjobs.job import Job
from rxjobs.outcome import Cancel, Complete, Discard, Outcome
from rxjobs.telemetry import names
from rxjobs.telemetry.attempt import attempt_of, begin, outcome_name
from rxjobs.telemetry.enqueuing import result_of
from rxjobs.telemetry.histograms import Histograms
from rxjobs.telemetry.instruments import Counts, Depth, Depths, Instruments, Limited, Sent
from rxjobs.telemetry.providers import Telemetry, is_set, meter_of
from rxjobs.telemetry.vitals import Vitals

RECENT_SECONDS = 30.0
"""How long an observed depth is told: a node that looks no more must not tell old numbers."""


class Metrics:
    """The metrics of one app: a listener of its events, told now and then how deep the queues are, and given its node to read."""

    def __init__(
        self,
        kinds: Container[str],
        telemetry: Telemetry,
        clock: Callable[[], float] = time.monotonic,
        queues: Callable[[], Container[str]] | None = None,
        beside: Callable[[Event], object] | None = None,
    ) -> None:
        how = telemetry.how()
        self.vitals: Vitals | None = None
        """The running node."""
        self._kinds = kinds
        self._queues = queues
        self._beside = beside
        """Who hears too what is not told of every single job: so that hot events have one listener."""
        self._provider = telemetry.meter_provider
        self._clock = clock
        self._tells_kind = how.tells_kind
        self._instruments = _instruments(telemetry.meter_provider, how.histograms)
        self._instruments.apps.add(self)
        self._depths: dict[tuple[str, str], Depth] = {}
        self._limits: dict[str, Limited] = {}
        self._observed = float("-inf")
        self._found: dict[tuple[str, str], Counts] = {}
        self._sent: dict[tuple[str, str], Sent] = {}
        self._queue_names: dict[str, str] = {}
        self._told = 0

    def hear(self, event: Event) -> None:
        """Count what happened."""
        match event:
            case JobStarted():
                self.began(event.job, event.queue_time)
            case JobStopped():
                self.ended(event.job, event.outcome, event.duration)
            case JobFailed():
                self.ended(event.job, event.outcome, event.duration, event.error)
            case QueueFetched() | JobsAcked():
                self._hear_batch(event)
                self._hand_on(event)
            case JobsEnqueued():
                pass  # counted around the insert
            case BreakerRejected():
                (attempt_of(event.job) or begin(event.job)).is_rejected = True
                self._instruments.breaker_rejections.add(self._kind(event.job.type))
            case JobStale():
                self._instruments.stale.add(self._queue(event.job.queue))
            case StageWorked():
                if event.is_sample:
                    self._instruments.stage_duration.by(event.stage)(event.duration / 1e9)
                self._hand_on(event)
            case _:
                self._hear_seldom(event)
                self._hand_on(event)

    def began(self, job: Job, queue_time: int) -> None:
        """Count a run that began."""
        counts = self._found.get((job.queue, job.type)) or self._counts(job)
        counts.active += 1
        counts.waited(queue_time / 1e9)

    def ended(self, job: Job, outcome: Outcome, duration: int, failure: Failure | None = None) -> None:
        """Count a run that ended."""
        counts, attempt = self._found.get((job.queue, job.type)) or self._counts(job), attempt_of(job)
        counts.active -= 1
        # as most do: the rest of the cases takes longer than all else there is to count
        name = names.SUCCESS if type(outcome) is Complete else outcome_name(outcome, attempt)
        counts.attempts[name] += 1
        record = counts.succeeded if failure is None else self._instruments.failed(counts, failure)
        record(duration / 1e9, None if attempt is None else attempt.context)
        if counts.tells_life and job.inserted_at is not None:
            self._live(job, outcome, name, counts.queue)

    @property
    def is_watching(self) -> bool:
        """Whether anybody may collect: if not, the depth of the queues need not be looked at."""
        return self._provider is not None or is_set(metrics.get_meter_provider())

    def observe(
        self,
        depths: Mapping[tuple[str, str], tuple[int, float | None]] | None,
        limits: Mapping[str, tuple[int | None, float | None]] = {},
    ) -> None:
        """Take note of the queues' depths and limits. One that was seen before and is gone is empty now.

        None: this node looks no more.
        """
        self._limits = {name: Limited(*of) for queue, of in limits.items() if (name := self._queue(queue)) != names.OTHER}
        if depths is None:
            self._depths, self._observed = {}, float("-inf")
            return
        told: dict[tuple[str, str], Depth] = dict.fromkeys(self._depths, Depth(0))
        for (queue, state), (jobs, oldest) in depths.items():
            key = self._queue(queue), state
            before = told[key] if key[0] == names.OTHER and key in told else Depth(0)
            told[key] = Depth(before.jobs + jobs, max(before.oldest or 0.0, oldest or 0.0))
        self._depths = told
        self._observed = self._clock()

    @property
    def recent_depths(self) -> Depths:
        """The depths, if they were observed a short while ago."""
        return self._depths if self._clock() - self._observed <= RECENT_SECONDS else {}

    @property
    def recent_limits(self) -> Mapping[str, Limited]:
        """What queues are limited to on all nodes, if that was observed a short while ago."""
        return self._limits if self._clock() - self._observed <= RECENT_SECONDS else {}

    def follow(self, vitals: Vitals | None) -> None:
        """Read this node from now on, or none."""
        self.vitals = vitals

    def time_loop(self, seconds: float) -> None:
        """The event loop woke a timer so much later than asked."""
        self._instruments.loop_delay.by()(seconds)

    def time_notify(self, seconds: float) -> None:
        """A notification took so long to come back."""
        self._instruments.notify_delay.by()(seconds)

    def time_connection(self, pool: str, waited: float, used: float) -> None:
        """A connection of a pool was waited for and used, for so many seconds each."""
        self._instruments.wait_time.by(pool)(waited)
        self._instruments.use_time.by(pool)(used)

    async def around_insert(
        self, news: Sequence[NewJob], insert: Callable[[Sequence[NewJob]], Awaitable[list[Enqueued]]]
    ) -> list[Enqueued]:
        """Count what one call enqueues, and how long it takes."""
        began = time.monotonic()
        try:
            rows = await insert(news)
        except Exception as error:
            self._enqueued(news, None, time.monotonic() - began, qualified_name(type(error)))
            raise
        seconds = time.monotonic() - began
        if len(rows) == 1 and not rows[0].duplicate and (sent := self._sent_one(news[0])) is not None:
            sent.count(seconds)
        else:
            self._enqueued(news, rows, seconds, "")
        return rows

    def _sent_one(self, new: NewJob) -> Sent | None:
        """What counts a single job that is inserted; None where its names are not those that it is told by, or not for good."""
        sent = self._sent.get((new.queue, new.type))
        if sent is None and new.type in self._kinds and self._queue(new.queue) == new.queue:
            sent = self._sent[new.queue, new.type] = Sent(self._instruments, new.queue, new.type if self._tells_kind else "")
        return sent

    def _hand_on(self, event: Event) -> None:
        if self._beside is not None:
            self._beside(event)

    def _enqueued(self, news: Sequence[NewJob], rows: Sequence[Enqueued] | None, seconds: float, error: str) -> None:
        tell = self._instruments
        if error:
            error = tell.error_type(names.ENQUEUE, Failure(error, ""))
        # of a thousand jobs that are inserted together most are alike: they are counted first, and told of then
        sent = Counter(map(_queue_of, news))
        queues = {self._queue(queue) for queue in sent}
        tell.operation_duration.by(names.SYSTEM, names.ENQUEUE, queues.pop() if len(queues) == 1 else "", names.SEND, error)(
            seconds
        )
        for queue, count in sent.items():
            tell.sent.add(names.SYSTEM, names.ENQUEUE, self._queue(queue), error, count=count)
        for (queue, type_, result), count in _results(news, rows or ()).items():
            tell.enqueues.add(self._queue(queue), self._kind(type_) if self._tells_kind else "", result, count=count)

    def _hear_batch(self, event: QueueFetched | JobsAcked) -> None:
        tell, queue, count = self._instruments, self._queue(event.queue), len(event.jobs)
        is_fetch = isinstance(event, QueueFetched)
        operation, kind = (names.FETCH, names.RECEIVE) if is_fetch else (names.ACK, names.SETTLE)
        error = "" if event.error is None else tell.error_type(operation, event.error)
        tell.operation_duration.by(names.SYSTEM, operation, queue, kind, error)(event.duration / 1e9)
        if not isinstance(event, QueueFetched):
            if event.error is None:
                tell.ack_size.by(queue)(count)
            return
        tell.requested.add(queue, count=event.requested)
        if event.error is not None:
            return
        if count:
            tell.fulfilled.add(queue, count=count)
            tell.consumed.add(names.SYSTEM, names.FETCH, queue, count=count)
        tell.fetch_size.by(queue)(count)
        result = names.EMPTY if not count else names.FULL if count >= event.requested else names.PARTIAL
        tell.polls.add(queue, event.trigger, result)

    def _hear_seldom(self, event: Event) -> None:
        tell = self._instruments
        match event:
            case QueueStalled():
                tell.stalled.add(self._queue(event.queue))
            case JobsRescued():
                for queue, count in event.queues.items():
                    tell.rescues.add(self._queue(queue), event.reason, count=count)
            case MaintenanceEnded():
                error = "" if event.error is None else tell.error_type(event.task, event.error)
                tell.maintenance.by(event.task, error)(event.duration / 1e9)
                for state, count in event.states.items():
                    if event.task == names.PRUNE:
                        tell.prunes.add(state, count=count)
                    elif event.task == names.PROMOTE:
                        tell.promotions.add(state, count=count)
            case LeaderWon():
                tell.leader_transitions.add(names.ACQUIRED)
            case LeaderLost():
                tell.leader_transitions.add(names.LOST)
            case BreakerChanged():
                tell.breaker_transitions.add(self._kind(event.type), event.after.replace("-", "_"))
            case _:
                pass

    def _live(self, job: Job, outcome: Outcome, name: str, queue: str) -> None:
        if not isinstance(outcome, Complete | Discard | Cancel) or job.inserted_at is None or job.attempted_at is None:
            return
        held = 0.0 if job.hold is None else (time.monotonic_ns() - job.hold.fetched) / 1e9
        self._instruments.lifetime.by(queue, name)((job.attempted_at - job.inserted_at).total_seconds() + held)

    def _counts(self, job: Job) -> Counts:
        queue, kind = self._queue(job.queue), self._kind(job.type)
        counts = self._instruments.counts(queue, kind, tells_kind=self._tells_kind)
        if kind != names.OTHER and queue == job.queue:
            self._found[job.queue, job.type] = counts
        return counts

    def _kind(self, name: str) -> str:
        return name if name in self._kinds else names.OTHER

    def _queue(self, name: str) -> str:
        """What a queue is told as: an app's own by their names, and a few others, since users may make up any number of them."""
        found = self._queue_names.get(name)
        if found is None:
            is_own = self._queues is None or name in self._queues()
            if not is_own and self._told >= names.QUEUES:
                return names.OTHER
            self._told += not is_own
            found = self._queue_names[name] = name
        return found


_queue_of = attrgetter("queue")
_kind_of = attrgetter("queue", "type")
_is_duplicate = attrgetter("duplicate")


def _results(news: Sequence[NewJob], rows: Sequence[Enqueued]) -> Counter[tuple[str, str, str]]:
    """How many of each queue and type ended how."""
    if any(map(_is_duplicate, rows)):
        return Counter((new.queue, new.type, result_of(new, row)) for new, row in zip(news, rows, strict=False))
    inserted = Counter(map(_kind_of, news[: len(rows)]))
    return Counter({(*kind, names.INSERTED): count for kind, count in inserted.items()})


@cache
def _instruments(provider: MeterProvider | None, histograms: Histograms | None) -> Instruments:
    return Instruments(meter_of(provider), histograms, is_the_process_s=provider is None)
