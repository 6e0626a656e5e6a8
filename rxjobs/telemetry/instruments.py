"""The instruments of one meter. Most are plain integers, which are only read when somebody collects."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from rxjobs.failure import Failure
from rxjobs.telemetry import names
from rxjobs.telemetry.histograms import Histograms, Record, Timing
from rxjobs.telemetry.vitals import ServerVitals, Vitals

Read = Callable[[], Iterable[Observation]]


class Depth(NamedTuple):
    """How many jobs of a queue are in a state, and how many seconds the oldest of those has waited that may run."""

    jobs: int
    oldest: float | None = None


Depths = Mapping[tuple[str, str], Depth]
"""The depth of each queue and state."""


class Limited(NamedTuple):
    """How many jobs of a queue run at once at most on all nodes, and how many start in a second; None is no limit."""

    concurrency: int | None
    rate: float | None


class Told(Protocol):
    """An app, as far as its metrics are read."""

    @property
    def recent_depths(self) -> Depths: ...

    @property
    def recent_limits(self) -> Mapping[str, Limited]: ...

    @property
    def vitals(self) -> Vitals | None: ...


class Tally:
    """The numbers of a counter, by the values of its attributes in their order."""

    def __init__(self, metric: names.Metric) -> None:
        self.metric = metric
        self.counts: Counter[tuple[str, ...]] = Counter()

    def add(self, *values: str, count: int = 1) -> None:
        """Count."""
        self.counts[values] += count

    def read(self) -> Iterator[Observation]:
        """What was counted; an empty value is left out."""
        for values, count in list(self.counts.items()):  # copied, since the loop goes on counting
            told = zip(self.metric.attributes, values, strict=True)
            yield Observation(count, {name: value for name, value in told if value})


class Counts:
    """What is counted of one job type in one queue, and what records its durations."""

    __slots__ = ("active", "attempts", "attributes", "failed", "kind", "queue", "succeeded", "tells_life", "told", "waited")

    def __init__(self, queue: str, kind: str, instruments: Instruments, *, tells_kind: bool) -> None:
        self.kind = kind
        self.queue = queue
        self.active = 0
        self.attempts: dict[str, int] = defaultdict(int)
        self.attributes = {names.DESTINATION: queue, **({names.KIND: kind} if tells_kind else {})}
        self.told = {names.MESSAGING_SYSTEM: names.SYSTEM, names.OPERATION_NAME: names.PROCESS, **self.attributes}
        self.waited: Record = instruments.queue_duration.by(queue)
        self.succeeded: Record = instruments.process_duration.of(self.told)
        self.failed: dict[str, Record] = {}
        self.tells_life = instruments.lifetime.sums is not None  # a third record would be dear elsewhere


class Sent:
    """What counts the jobs of one type that are inserted alone into one queue."""

    __slots__ = ("_enqueued", "_enqueues", "_record", "_sends", "_sent")

    def __init__(self, instruments: Instruments, queue: str, kind: str) -> None:
        self._sends, self._sent = instruments.sent.counts, (names.SYSTEM, names.ENQUEUE, queue, "")
        self._enqueues, self._enqueued = instruments.enqueues.counts, (queue, kind, names.INSERTED)
        self._record = instruments.operation_duration.by(names.SYSTEM, names.ENQUEUE, queue, names.SEND, "")

    def count(self, seconds: float) -> None:
        """One was inserted, which took so long."""
        self._record(seconds)
        self._sends[self._sent] += 1
        self._enqueues[self._enqueued] += 1


class Instruments:
    """The instruments of one meter. The apps of a process share them, since a meter has each name once."""

    def __init__(self, meter: Meter, histograms: Histograms | None, *, is_the_process_s: bool) -> None:
        self.apps: WeakSet[Told] = WeakSet()
        self._all: dict[tuple[str, str], Counts] = {}
        self._error_types: dict[str, set[str]] = {}

        def timing(metric: names.Metric) -> Timing:
            return Timing(metric, meter, histograms, may_be_fast=is_the_process_s)

        self.process_duration = timing(names.PROCESS_DURATION)
        self.queue_duration = timing(names.QUEUE_DURATION)
        self.lifetime = timing(names.LIFETIME_DURATION)
        self.operation_duration = timing(names.OPERATION_DURATION)
        self.fetch_size = timing(names.FETCH_BATCH_SIZE)
        self.ack_size = timing(names.ACK_BATCH_SIZE)
        self.stage_duration = timing(names.STAGE_DURATION)
        self.maintenance = timing(names.MAINTENANCE_DURATION)
        self.loop_delay = timing(names.LOOP_DELAY)
        self.notify_delay = timing(names.NOTIFY_DELAY)
        self.wait_time = timing(names.WAIT_TIME)
        self.use_time = timing(names.USE_TIME)

        def tally(metric: names.Metric) -> Tally:
            made = Tally(metric)
            _observe(meter, metric, made.read)
            return made

        self.sent = tally(names.SENT)
        self.consumed = tally(names.CONSUMED)
        self.enqueues = tally(names.ENQUEUES)
        self.rescues = tally(names.RESCUES)
        self.prunes = tally(names.PRUNES)
        self.promotions = tally(names.PROMOTIONS)
        self.stalled = tally(names.STALLED)
        self.stale = tally(names.STALE)
        self.requested = tally(names.REQUESTED)
        self.fulfilled = tally(names.FULFILLED)
        self.polls = tally(names.POLLS)
        self.leader_transitions = tally(names.LEADER_TRANSITIONS)
        self.breaker_transitions = tally(names.BREAKER_TRANSITIONS)
        self.breaker_rejections = tally(names.BREAKER_REJECTIONS)
        for metric, read in {**self._of_jobs(), **self._of_nodes()}.items():
            _observe(meter, metric, read)

    def counts(self, queue: str, kind: str, *, tells_kind: bool = True) -> Counts:
        """What is counted of a job type in a queue."""
        counts = self._all.get((queue, kind))
        if counts is None:
            counts = self._all[queue, kind] = Counts(queue, kind, self, tells_kind=tells_kind)
        return counts

    def failed(self, counts: Counts, failure: Failure) -> Record:
        """What records a failed attempt; a job type has no more than so many kinds of errors, whatever it raises."""
        record = counts.failed.get(failure.type)
        if record is None:
            error = self.error_type(counts.kind, failure)
            record = self.process_duration.of({**counts.told, names.ERROR_TYPE: error})
            if error is not names.OTHER:
                counts.failed[failure.type] = record
        return record

    def error_type(self, of: str, failure: Failure) -> str:
        """What an error is told as: so many are told apart of one job type, or of one operation."""
        known = self._error_types.setdefault(of, set())
        if failure.type not in known and len(known) >= names.ERROR_TYPES:
            return names.OTHER
        known.add(failure.type)
        return failure.type

    def _of_jobs(self) -> Mapping[names.Metric, Read]:
        return {
            names.ATTEMPTS: self._attempts,
            names.ACTIVE: self._active,
            names.DEPTH: self._depth,
            names.OLDEST_AGE: self._oldest,
            names.CONCURRENCY_LIMIT: lambda: self._limits(lambda limited: limited.concurrency),
            names.RATE_LIMIT: lambda: self._limits(lambda limited: limited.rate),
            names.NOTIFY_QUEUE_USAGE: lambda: self._of_server(lambda server: server.notifications),
            names.HORIZON_AGE: lambda: self._of_server(lambda server: server.horizon),
        }

    def _of_nodes(self) -> Mapping[names.Metric, Read]:
        def of(metric: names.Metric, numbers: Callable[[Vitals], Iterable[tuple[float, tuple[str, ...]]]]) -> Read:
            return lambda: self._read(metric, numbers)

        readers: dict[names.Metric, Callable[[Vitals], Iterable[tuple[float, tuple[str, ...]]]]] = {
            names.QUEUE_LIMIT: lambda node: [(one.limit, (one.queue,)) for one in node.queues],
            names.PAUSED: lambda node: [(int(one.is_paused), (one.queue,)) for one in node.queues],
            names.OUTSTANDING: lambda node: [(one.outstanding, (one.queue,)) for one in node.queues],
            names.ACK_PENDING: lambda node: [(one.pending, (one.queue,)) for one in node.queues],
            names.STAGE_ITEMS: _stage_items,
            names.BUFFER_USAGE: lambda node: [(one.waiting, (one.stage,)) for one in node.stages if one.limit],
            names.BUFFER_LIMIT: lambda node: [(one.limit, (one.stage,)) for one in node.stages if one.limit],
            names.LEADER_STATUS: lambda node: [(int(node.is_leading), ())],
            names.BREAKERS: _breakers,
            names.EXECUTOR_USAGE: lambda node: [(one.usage, (one.type,)) for one in node.executors],
            names.EXECUTOR_LIMIT: lambda node: [(one.limit, (one.type,)) for one in node.executors if one.limit is not None],
            names.EXECUTOR_QUEUE: lambda node: [(one.waiting, (one.type,)) for one in node.executors],
            names.NOTIFY_CONNECTED: lambda node: [(int(node.notify.is_connected), ())] if node.notify else [],
            names.NOTIFY_RECONNECTS: lambda node: [(node.notify.reconnects, ())] if node.notify else [],
            names.NOTIFY_MESSAGES: lambda node: [(node.notify.messages, (node.notify.channel,))] if node.notify else [],
            names.CONNECTIONS: _connections,
            names.CONNECTIONS_MAX: lambda node: [(one.most, (one.pool,)) for one in node.pools],
            names.PENDING_REQUESTS: lambda node: [(one.waiting, (one.pool,)) for one in node.pools],
            names.CONNECTION_TIMEOUTS: lambda node: [(one.timeouts, (one.pool,)) for one in node.pools],
            names.HANDLER_FAILURES: lambda node: [(count, (event,)) for event, count in node.listener_failures.items()],
        }
        return {metric: of(metric, numbers) for metric, numbers in readers.items()}

    # read on the collecting thread, while the loop goes on counting: hence the copies

    def _read(
        self, metric: names.Metric, numbers: Callable[[Vitals], Iterable[tuple[float, tuple[str, ...]]]]
    ) -> Iterator[Observation]:
        """The numbers of all running nodes of this process, added up."""
        totals: dict[tuple[str, ...], float] = {}
        for app in list(self.apps):
            node = app.vitals
            for number, values in [] if node is None else list(numbers(node)):
                totals[values] = totals.get(values, 0) + number
        for values, total in totals.items():
            yield Observation(total, dict(zip(metric.attributes, values, strict=True)))

    def _attempts(self) -> Iterator[Observation]:
        for counts in list(self._all.values()):
            for outcome, count in list(counts.attempts.items()):
                yield Observation(count, {**counts.attributes, names.OUTCOME: outcome})

    def _active(self) -> Iterator[Observation]:
        for counts in list(self._all.values()):
            yield Observation(counts.active, counts.attributes)

    def _depth(self) -> Iterator[Observation]:
        for (queue, state), depth in self._depths().items():
            yield Observation(depth.jobs, {names.DESTINATION: queue, names.STATE: state})

    def _oldest(self) -> Iterator[Observation]:
        ages: dict[str, float] = {}
        for (queue, _), depth in self._depths().items():
            ages[queue] = max(ages.get(queue, 0.0), depth.oldest or 0.0)
        for queue, age in ages.items():
            yield Observation(age, {names.DESTINATION: queue})

    def _limits(self, number: Callable[[Limited], float | None]) -> Iterator[Observation]:
        for queue, limited in {queue: limited for app in list(self.apps) for queue, limited in app.recent_limits.items()}.items():
            if (limit := number(limited)) is not None:
                yield Observation(limit, {names.DESTINATION: queue})

    def _of_server(self, number: Callable[[ServerVitals], float]) -> Iterator[Observation]:
        # two apps may look at one server: what both have seen is not added up
        servers = [app.vitals.server for app in list(self.apps) if app.vitals is not None]
        seen = [number(server) for server in servers if server is not None]
        if seen:
            yield Observation(max(seen))

    def _depths(self) -> Depths:
        # two apps on one database have both seen the same jobs, so their depths are not added up
        return {key: depth for app in list(self.apps) for key, depth in app.recent_depths.items()}


def _observe(meter: Meter, metric: names.Metric, read: Read) -> None:
    def callback(_: CallbackOptions) -> Iterable[Observation]:
        return read()

    make: Any = {
        "counter": meter.create_observable_counter,
        "updown": meter.create_observable_up_down_counter,
        "gauge": meter.create_observable_gauge,
    }[metric.kind]
    make(metric.name, [callback], metric.unit, metric.description)


def _stage_items(node: Vitals) -> Iterator[tuple[float, tuple[str, ...]]]:
    for one in node.stages:
        yield one.went_in, (one.stage, names.ITEM_IN)
        yield one.went_out, (one.stage, names.ITEM_OUT)
        yield one.dropped, (one.stage, names.ITEM_DROPPED)
        yield one.errors, (one.stage, names.ITEM_ERROR)


def _breakers(node: Vitals) -> Iterator[tuple[float, tuple[str, ...]]]:
    for name, now in node.breakers.items():
        for state in names.VALUES[names.BREAKER_STATE]:
            yield int(now == state), (name, state)


def _connections(node: Vitals) -> Iterator[tuple[float, tuple[str, ...]]]:
    for one in node.pools:
        yield one.idle, (one.pool, names.IDLE)
        yield one.used, (one.pool, names.USED)
