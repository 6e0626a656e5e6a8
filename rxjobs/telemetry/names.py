"""Every name that telemetry uses: attributes and their closed sets of values, metrics, spans and log events.

This is the one place of them: what is emitted takes them from here, observability/signals.md is generated from here, and every
dashboard, alert and rule is checked against what is said here. Names of the semantic conventions are copied, since they live in a
module that may change in any minor release.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Literal, NamedTuple


def _version() -> str:
    try:
        return metadata.version("rxjobs")
    except metadata.PackageNotFoundError:  # run from its source, without having been installed
        return ""


SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
SCOPE = "rxjobs"
VERSION = _version()

SYSTEM = "rxjobs"
ENQUEUE, CREATE, FETCH, PROCESS, ACK = "enqueue", "create", "fetch", "process", "ack"
"""Names of operations."""
SEND, RECEIVE, SETTLE = "send", "receive", "settle"
"""The conventions' types of operations, of which `create` and `process` are two more."""

# of the semantic conventions

MESSAGING_SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
MESSAGE_ID = "messaging.message.id"
CONVERSATION_ID = "messaging.message.conversation_id"
MESSAGE_COUNT = "messaging.batch.message_count"
CLIENT_ID = "messaging.client.id"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
CODE_FUNCTION = "code.function.name"
ERROR_TYPE = "error.type"
EXCEPTION_EVENT = "exception"
EXCEPTION_TYPE = "exception.type"
EXCEPTION_MESSAGE = "exception.message"
EXCEPTION_STACKTRACE = "exception.stacktrace"
SERVICE_NAME = "service.name"
SERVICE_INSTANCE = "service.instance.id"
POOL_NAME = "db.client.connection.pool.name"
CONNECTION_STATE = "db.client.connection.state"

# our own

KIND = "rxjobs.job.kind"
"""The job type: the conventions' word for what tells messages apart is taken by `messaging.operation.type`."""
KINDS = "rxjobs.job.kinds"
JOB_ID = "rxjobs.job.id"
ATTEMPT = "rxjobs.job.attempt"
MAX_ATTEMPTS = "rxjobs.job.max_attempts"
PRIORITY = "rxjobs.job.priority"
QUEUE_TIME = "rxjobs.job.queue_time"
SCHEDULED_AT = "rxjobs.job.scheduled_at"
RETRY_AT = "rxjobs.job.retry_at"
OUTCOME = "rxjobs.job.outcome"
STATE = "rxjobs.job.state"
EXECUTOR = "rxjobs.job.executor"
WORKER = "rxjobs.worker.id"
ENQUEUE_RESULT = "rxjobs.enqueue.result"
CRON_NAME = "rxjobs.cron.name"
DEMAND_REQUESTED = "rxjobs.demand.requested"
FETCH_TRIGGER = "rxjobs.fetch.trigger"
FETCH_RESULT = "rxjobs.fetch.result"
STAGE_NAME = "rxjobs.stage.name"
STAGE_DISPOSITION = "rxjobs.stage.disposition"
DROP_REASON = "rxjobs.stage.drop_reason"
ACKED = "rxjobs.ack"
"""With an outcome behind it, `rxjobs.ack.success`: how many of a batch ended so."""
DISCARD_REASON = "rxjobs.discard.reason"
RESCUE_REASON = "rxjobs.rescue.reason"
MAINTENANCE_TASK = "rxjobs.maintenance.task"
MAINTENANCE_COUNT = "rxjobs.maintenance.count"
LEADER_EVENT = "rxjobs.leader.event"
LEADER_TERM = "rxjobs.leader.term"
BREAKER_NAME = "rxjobs.breaker.name"
BREAKER_STATE = "rxjobs.breaker.state"
BREAKER_BEFORE = "rxjobs.breaker.before"
BREAKER_FAILURES, BREAKER_OPEN_SECONDS = "rxjobs.breaker.failures", "rxjobs.breaker.open_seconds"
EXECUTOR_TYPE = "rxjobs.executor.type"
NOTIFY_CHANNEL = "rxjobs.notify.channel"
EVENT_NAME = "rxjobs.event.name"
NODE_LABEL = "rxjobs.node.label"
"""Of the resource: what people call this node, where they do."""
LINK_KIND = "rxjobs.link.kind"

# closed sets of values

OTHER = "_OTHER"
"""What stands for a name that is not one of a known few."""
ERROR_TYPES = 20
"""How many different errors of one job type metrics tell apart."""
QUEUES = 8
"""How many queues metrics tell by their names that no job type names and no pipeline of the app takes from."""

SUCCESS, RETRY, DISCARD, CANCEL, SNOOZE, ABORT, REJECT = (
    "success", "retry", "discard", "cancel", "snooze", "abort", "reject",
)  # fmt: skip
"""How an attempt ended. An abort is a run that was stopped, a reject one that an open breaker did not let begin."""
INSERTED, DEDUPLICATED, REPLACED = "inserted", "deduplicated", "replaced"
LINK_ENQUEUE, LINK_PREVIOUS, LINK_AMBIENT, LINK_ATTEMPT = "enqueue", "previous_attempt", "ambient", "attempt"
BY_NOTIFY, BY_TIMER, BY_DEMAND = "notify", "timer", "demand"
EMPTY, PARTIAL, FULL = "empty", "partial", "full"
ITEM_IN, ITEM_OUT, ITEM_DROPPED, ITEM_ERROR = "in", "out", "dropped", "error"
HEARTBEAT_LOST, WORKER_GONE = "heartbeat_lost", "worker_gone"
"""Why jobs were taken from a node. None is for having run too long: a node that lives ends its own."""
USED_UP, UNRECOVERABLE = "max_attempts", "unrecoverable"
RESCUE, PRUNE, PROMOTE, AGE, OBSERVE, ELECT = "rescue", "prune", "promote", "age", "observe", "elect"
ACQUIRED, LOST = "acquired", "lost"
CLOSED, OPEN, HALF_OPEN = "closed", "open", "half_open"
ON_LOOP, IN_THREAD, IN_PROCESS, IN_POOL = "async", "thread", "process", "pool"
IDLE, USED = "idle", "used"

ACKED_AS: Mapping[str, str] = {outcome: f"{ACKED}.{outcome}" for outcome in (SUCCESS, RETRY, DISCARD, CANCEL, SNOOZE, ABORT)}
"""The attribute of an ack that counts an outcome; what was rejected is written as a snooze."""

VALUES: Mapping[str, tuple[str, ...]] = {
    OPERATION_NAME: (ENQUEUE, CREATE, FETCH, PROCESS, ACK),
    OPERATION_TYPE: (CREATE, SEND, RECEIVE, PROCESS, SETTLE),
    OUTCOME: (SUCCESS, RETRY, DISCARD, CANCEL, SNOOZE, ABORT, REJECT),
    STATE: ("scheduled", "available", "executing", "retryable", "completed", "discarded", "cancelled", "held"),
    ENQUEUE_RESULT: (INSERTED, DEDUPLICATED, REPLACED),
    FETCH_TRIGGER: (BY_NOTIFY, BY_TIMER, BY_DEMAND),
    FETCH_RESULT: (EMPTY, PARTIAL, FULL),
    STAGE_DISPOSITION: (ITEM_IN, ITEM_OUT, ITEM_DROPPED, ITEM_ERROR),
    RESCUE_REASON: (HEARTBEAT_LOST, WORKER_GONE),
    DISCARD_REASON: (USED_UP, UNRECOVERABLE),
    MAINTENANCE_TASK: (RESCUE, PRUNE, PROMOTE, AGE, OBSERVE, ELECT),
    LEADER_EVENT: (ACQUIRED, LOST),
    BREAKER_STATE: (CLOSED, OPEN, HALF_OPEN),
    EXECUTOR_TYPE: (ON_LOOP, IN_THREAD, IN_PROCESS, IN_POOL),
    CONNECTION_STATE: (IDLE, USED),
    LINK_KIND: (LINK_ENQUEUE, LINK_PREVIOUS, LINK_AMBIENT, LINK_ATTEMPT),
}
"""What an attribute may say where that is a closed set. Queues, job types, stages and breakers are an app's own names."""

# metrics

Kind = Literal["counter", "updown", "gauge", "histogram"]


class Metric(NamedTuple):
    """A metric: its name, unit and description, the bounds of its buckets if it is a histogram, its kind, and its attributes."""

    name: str
    unit: str
    description: str
    bounds: tuple[float, ...] = ()
    kind: Kind = "counter"
    attributes: tuple[str, ...] = ()


def _counter(name: str, unit: str, description: str, *attributes: str) -> Metric:
    return Metric(name, unit, description, (), "counter", attributes)


def _updown(name: str, unit: str, description: str, *attributes: str) -> Metric:
    return Metric(name, unit, description, (), "updown", attributes)


def _gauge(name: str, unit: str, description: str, *attributes: str) -> Metric:
    return Metric(name, unit, description, (), "gauge", attributes)


def _histogram(name: str, unit: str, description: str, bounds: tuple[float, ...], *attributes: str) -> Metric:
    return Metric(name, unit, description, bounds, "histogram", attributes)


_CONVENTIONAL = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The bounds that the conventions advise."""
_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_SIZES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)
_OPERATION = (MESSAGING_SYSTEM, OPERATION_NAME, DESTINATION)

SENT = _counter("messaging.client.sent.messages", "{message}", "Jobs that were enqueued.", *_OPERATION, ERROR_TYPE)
CONSUMED = _counter("messaging.client.consumed.messages", "{message}", "Jobs that were fetched, each time they are.", *_OPERATION)
OPERATION_DURATION = _histogram(
    "messaging.client.operation.duration",
    "s",
    "Duration of one enqueue, fetch or ack: one call of the database.",
    (0.001, *_CONVENTIONAL),
    *(*_OPERATION, OPERATION_TYPE, ERROR_TYPE),
)
PROCESS_DURATION = _histogram(
    "messaging.process.duration",
    "s",
    "Duration of one attempt to run a job.",
    (*_CONVENTIONAL, 30, 60, 300, 900, 3600),  # jobs may take long
    *(*_OPERATION, KIND, ERROR_TYPE),
)

ENQUEUES = _counter(
    "rxjobs.job.enqueues", "{job}", "Jobs that were enqueued, by what came of it.", DESTINATION, KIND, ENQUEUE_RESULT
)
ATTEMPTS = _counter("rxjobs.job.attempts", "{attempt}", "Attempts that ended, by how they ended.", DESTINATION, KIND, OUTCOME)
ACTIVE = _updown("rxjobs.job.active", "{job}", "Jobs that are running now.", DESTINATION, KIND)
QUEUE_DURATION = _histogram(
    "rxjobs.job.queue.duration",
    "s",
    "How long a job could have run before an attempt began.",
    (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400),
    DESTINATION,
)
LIFETIME_DURATION = _histogram(
    "rxjobs.job.lifetime.duration",
    "s",
    "From a job's enqueue to its last outcome.",
    (0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400, 604800),
    *(DESTINATION, OUTCOME),
)
RESCUES = _counter("rxjobs.job.rescues", "{job}", "Jobs that were taken from a node that is gone.", DESTINATION, RESCUE_REASON)
PRUNES = _counter("rxjobs.job.prunes", "{job}", "Finished jobs whose rows were removed.", STATE)
PROMOTIONS = _counter("rxjobs.job.promotions", "{job}", "Jobs whose time came, by the state they waited in.", STATE)

DEPTH = _updown(
    "rxjobs.queue.depth", "{job}", "Jobs in a queue, as the leader saw it; of finished ones the dead letters.", DESTINATION, STATE
)
OLDEST_AGE = _gauge(
    "rxjobs.queue.oldest_job.age", "s", "How long the oldest ready job has waited; 0 where none waits.", DESTINATION
)
QUEUE_LIMIT = _updown("rxjobs.queue.limit", "{job}", "The most jobs of a queue that this node runs at once.", DESTINATION)
CONCURRENCY_LIMIT = _updown(
    "rxjobs.queue.concurrency.limit", "{job}", "The most jobs of a limited queue that run at once on all nodes.", DESTINATION
)
RATE_LIMIT = _gauge("rxjobs.queue.rate.limit", "{job}", "The most that start in a second, on average, on all nodes.", DESTINATION)
PAUSED = _gauge("rxjobs.queue.paused", "{queue}", "Whether a queue is paused on this node: 1 or 0.", DESTINATION)
STALLED = _counter(
    "rxjobs.queue.stalled", "{time}", "How often ready jobs were there, this node had room for them, and fetched none.", DESTINATION
)

REQUESTED = _counter("rxjobs.demand.requested", "{job}", "Jobs that sources were asked for.", DESTINATION)
FULFILLED = _counter("rxjobs.demand.fulfilled", "{job}", "Jobs that they gave.", DESTINATION)
OUTSTANDING = _updown("rxjobs.demand.outstanding", "{job}", "Jobs that pipelines would take and have not been given.", DESTINATION)
POLLS = _counter(
    "rxjobs.fetch.polls", "{poll}", "Fetches, by what caused them and what they gave.", DESTINATION, FETCH_TRIGGER, FETCH_RESULT
)
FETCH_BATCH_SIZE = _histogram("rxjobs.fetch.batch.size", "{job}", "Jobs of one fetch.", _SIZES, DESTINATION)
ACK_BATCH_SIZE = _histogram("rxjobs.ack.batch.size", "{job}", "Outcomes of one ack.", _SIZES, DESTINATION)
ACK_PENDING = _updown("rxjobs.ack.pending", "{job}", "Outcomes that are not written yet.", DESTINATION)
STALE = _counter(
    "rxjobs.ack.stale", "{job}", "Outcomes that changed nothing, since the claim they are of is not the current one.", DESTINATION
)

STAGE_ITEMS = _counter(
    "rxjobs.stage.items", "{item}", "What went into a stage, and what became of it.", STAGE_NAME, STAGE_DISPOSITION
)
STAGE_DURATION = _histogram(
    "rxjobs.stage.duration", "s", "Duration of a stage's own work on one item or batch.", _SHORT, STAGE_NAME
)
BUFFER_USAGE = _updown("rxjobs.stage.buffer.usage", "{item}", "Items that wait in a stage.", STAGE_NAME)
BUFFER_LIMIT = _updown("rxjobs.stage.buffer.limit", "{item}", "The most items that may wait there.", STAGE_NAME)

MAINTENANCE_DURATION = _histogram(
    "rxjobs.maintenance.duration",
    "s",
    "Duration of one round of what runs beside the queues.",
    (0.001, *_CONVENTIONAL),
    MAINTENANCE_TASK,
    ERROR_TYPE,
)
LEADER_STATUS = _gauge("rxjobs.leader.status", "{leader}", "Whether this node leads: 1 or 0. All running nodes say so.")
LEADER_TRANSITIONS = _counter(
    "rxjobs.leader.transitions", "{transition}", "How often this node began or ceased to lead.", LEADER_EVENT
)

BREAKERS = _updown(
    "rxjobs.breaker.state",
    "{breaker}",
    "1 for the state that a breaker is in on this node, 0 for the others.",
    BREAKER_NAME,
    BREAKER_STATE,
)
BREAKER_TRANSITIONS = _counter(
    "rxjobs.breaker.transitions", "{transition}", "Moves of a breaker, by the state it moved to.", BREAKER_NAME, BREAKER_STATE
)
BREAKER_REJECTIONS = _counter("rxjobs.breaker.rejections", "{job}", "Jobs that an open breaker did not let begin.", BREAKER_NAME)

EXECUTOR_USAGE = _updown("rxjobs.executor.usage", "{slot}", "Places of executors that are taken.", EXECUTOR_TYPE)
EXECUTOR_LIMIT = _updown("rxjobs.executor.limit", "{slot}", "Places that executors have.", EXECUTOR_TYPE)
EXECUTOR_QUEUE = _updown("rxjobs.executor.queue.length", "{job}", "Jobs that wait for a place in an executor.", EXECUTOR_TYPE)
LOOP_DELAY = _histogram("rxjobs.eventloop.delay", "s", "How much later than asked the event loop woke a timer.", _SHORT)

NOTIFY_DELAY = _histogram("rxjobs.notify.delay", "s", "From a notification of this node to itself to its arrival.", _SHORT)
NOTIFY_CONNECTED = _gauge("rxjobs.notify.connected", "{connection}", "Whether this node listens for notifications: 1 or 0.")
NOTIFY_RECONNECTS = _counter("rxjobs.notify.reconnects", "{reconnect}", "How often listening had to begin again.")
NOTIFY_QUEUE_USAGE = _gauge(
    "rxjobs.notify.queue.usage",
    "{part}",
    "The part of the server's room for notifications that is taken, 0 to 1, as the leader saw it. From 0.5 on nobody is notified.",
)
NOTIFY_MESSAGES = _counter("rxjobs.notify.messages", "{message}", "Notifications that arrived.", NOTIFY_CHANNEL)

HORIZON_AGE = _gauge(
    "rxjobs.database.horizon.age",
    "s",
    "For how long somebody has kept vacuum from removing dead rows, as the leader last saw it; 0 where nobody does.",
)

CONNECTIONS = _updown("db.client.connection.count", "{connection}", "Connections of the pool.", POOL_NAME, CONNECTION_STATE)
CONNECTIONS_MAX = _updown("db.client.connection.max", "{connection}", "The most connections that the pool may have.", POOL_NAME)
PENDING_REQUESTS = _updown("db.client.connection.pending_requests", "{request}", "Who waits for a connection.", POOL_NAME)
CONNECTION_TIMEOUTS = _counter(
    "db.client.connection.timeouts", "{timeout}", "Waits for a connection that were given up.", POOL_NAME
)
WAIT_TIME = _histogram("db.client.connection.wait_time", "s", "How long a connection was waited for.", _SHORT, POOL_NAME)
USE_TIME = _histogram(
    "db.client.connection.use_time", "s", "How long a connection was used until it was given back.", (*_SHORT, 5, 10), POOL_NAME
)

HANDLER_FAILURES = _counter(
    "rxjobs.telemetry.handler.failures", "{failure}", "What raised while it was told of an event.", EVENT_NAME
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))

# spans and log events


class Span(NamedTuple):
    """A span: its name, in which {…} is a name of the app's own, its kind, what it is for, and its attributes."""

    name: str
    kind: Literal["producer", "client", "consumer", "internal"]
    description: str
    attributes: tuple[str, ...]


_SERVER = (SERVER_ADDRESS, SERVER_PORT)
_MESSAGING = (MESSAGING_SYSTEM, OPERATION_NAME, OPERATION_TYPE, DESTINATION, CLIENT_ID, *_SERVER)

SPANS = (
    Span("enqueue {queue}", "producer", "One job is enqueued. Its context is stored with the job, and its attempts are children.",
        (*_MESSAGING, MESSAGE_ID, KIND, PRIORITY, SCHEDULED_AT, ENQUEUE_RESULT, CRON_NAME, ERROR_TYPE)),
    Span("enqueue {queue}", "client", "Many jobs are enqueued, each in a create span, which this one links to. Without "
        "create spans it is a producer, and its context goes with every job.", (*_MESSAGING, MESSAGE_COUNT, KINDS, ERROR_TYPE)),
    Span("create {queue}", "producer", "One job of many; only for as many as a limit says.", (*_MESSAGING, MESSAGE_ID, KIND)),
    Span("fetch {queue}", "client", "Jobs are fetched; links to where they were enqueued. Off by default.",
        (*_MESSAGING, MESSAGE_COUNT, DEMAND_REQUESTED, FETCH_TRIGGER, ERROR_TYPE)),
    Span("process {queue}", "consumer", "One attempt to run a job; links to its enqueue and to the attempt before.",
        (*_MESSAGING, MESSAGE_ID, CONVERSATION_ID, KIND, ATTEMPT, MAX_ATTEMPTS, PRIORITY, QUEUE_TIME, EXECUTOR, WORKER,
        CODE_FUNCTION, OUTCOME, RETRY_AT, ERROR_TYPE)),
    Span("{stage} {kind}", "internal", "A stage's work on one job, where it is marked as traced or slow.",
        (STAGE_NAME, STAGE_DISPOSITION, DROP_REASON, KIND)),
    Span("{stage}", "internal", "A stage's work on several jobs in one call; links to where they were enqueued.",
        (STAGE_NAME, STAGE_DISPOSITION, KINDS, MESSAGE_COUNT)),
    Span("ack {queue}", "client", "Outcomes are written; links to the attempts. Off by default.",
        (*_MESSAGING, MESSAGE_COUNT, *ACKED_AS.values(), ERROR_TYPE)),
    Span("discard {queue}", "internal", "A job becomes a dead letter; child of its last attempt.",
        (DESTINATION, MESSAGE_ID, KIND, ATTEMPT, DISCARD_REASON)),
    *(Span(task, "internal", f"{what}; only where that was any, or failed.", (MAINTENANCE_TASK, MAINTENANCE_COUNT, ERROR_TYPE))
        for task, what in ((RESCUE, "Jobs are taken from nodes that are gone"), (PRUNE, "Old rows are removed"),
        (PROMOTE, "Jobs whose time came are made ready"), (AGE, "Jobs that wait are raised by one priority"),
        (OBSERVE, "Queues are counted"), (ELECT, "Who leads changes"))),
)  # fmt: skip
SPAN_HEARTBEAT_LOST, SPAN_TIMEOUT, SPAN_BREAKER = "rxjobs.heartbeat.lost", "rxjobs.timeout", "rxjobs.breaker.transition"
"""Events on the span of an attempt, beside the exception."""


class LogEvent(NamedTuple):
    """A log record with a name of its own."""

    name: str
    severity: Literal["INFO", "WARN", "ERROR"]
    description: str
    attributes: tuple[str, ...]


PROCESS_EXCEPTION = LogEvent(
    "messaging.process.exception",
    "ERROR",
    "An attempt failed. OTEL_SEMCONV_EXCEPTION_SIGNAL_OPT_IN asks for it.",
    (EXCEPTION_TYPE, EXCEPTION_MESSAGE, EXCEPTION_STACKTRACE, KIND, DESTINATION, MESSAGE_ID),
)
JOB_DISCARDED = LogEvent(
    "rxjobs.job.discarded", "WARN", "A job became a dead letter.", (JOB_ID, KIND, DESTINATION, ATTEMPT, DISCARD_REASON)
)
JOB_RESCUED = LogEvent("rxjobs.job.rescued", "WARN", "A job was taken from a node that is gone.", (JOB_ID, WORKER, RESCUE_REASON))
BREAKER_MOVED = LogEvent(
    "rxjobs.breaker.transition",
    "WARN",
    "A breaker moved: after so many failures in a row, or after it was not closed for so long.",
    (BREAKER_NAME, BREAKER_BEFORE, BREAKER_STATE, BREAKER_FAILURES, BREAKER_OPEN_SECONDS),
)
LEADER_CHANGED = LogEvent(
    "rxjobs.leader.changed", "INFO", "This node began or ceased to lead.", (WORKER, LEADER_EVENT, LEADER_TERM)
)
LOG_EVENTS = (PROCESS_EXCEPTION, JOB_DISCARDED, JOB_RESCUED, BREAKER_MOVED, LEADER_CHANGED)
