"""Every name that telemetry uses: attributes, metrics with their units and buckets, and the words for how an attempt ended.

Those of the semantic conventions are copied, since they live in a module that may change in any minor release.
"""

from __future__ import annotations

from importlib import metadata
from typing import NamedTuple


def _version() -> str:
    try:
        return metadata.version("rxjobs")
    except metadata.PackageNotFoundError:  # run from its source, without having been installed
        return ""


SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
SCOPE = "rxjobs"
VERSION = _version()

SYSTEM = "rxjobs"
ENQUEUE, PROCESS = "enqueue", "process"

MESSAGING_SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
MESSAGE_ID = "messaging.message.id"
MESSAGE_COUNT = "messaging.batch.message_count"
CODE_FUNCTION = "code.function.name"
ERROR_TYPE = "error.type"
EXCEPTION_EVENT = "exception"
EXCEPTION_TYPE = "exception.type"
EXCEPTION_MESSAGE = "exception.message"
EXCEPTION_STACKTRACE = "exception.stacktrace"
SERVICE_NAME = "service.name"
SERVICE_INSTANCE = "service.instance.id"

KIND = "rxjobs.job.kind"
KINDS = "rxjobs.job.kinds"
ATTEMPT = "rxjobs.job.attempt"
MAX_ATTEMPTS = "rxjobs.job.max_attempts"
PRIORITY = "rxjobs.job.priority"
QUEUE_TIME = "rxjobs.job.queue_time"
SCHEDULED_AT = "rxjobs.job.scheduled_at"
RETRY_AT = "rxjobs.job.retry_at"
OUTCOME = "rxjobs.job.outcome"
STATE = "rxjobs.job.state"
WORKER = "rxjobs.worker.id"
ENQUEUE_RESULT = "rxjobs.enqueue.result"
INSERTED, DEDUPLICATED = "inserted", "deduplicated"
LINK_KIND = "rxjobs.link.kind"
LINK_ENQUEUE, LINK_PREVIOUS, LINK_AMBIENT = "enqueue", "previous_attempt", "ambient"

OTHER = "_OTHER"
"""What stands for a name that is not one of a known few."""
ERROR_TYPES = 20
"""How many different errors of one job type metrics tell apart."""

SUCCESS, RETRY, DISCARD, CANCEL, SNOOZE, ABORT, REJECT = (
    "success", "retry", "discard", "cancel", "snooze", "abort", "reject",
)  # fmt: skip
"""How an attempt ended. An abort is a run that was stopped, a reject one that an open breaker did not let begin."""


class Metric(NamedTuple):
    """A metric's name, unit and description; the bounds of its buckets if it is a histogram."""

    name: str
    unit: str
    description: str
    bounds: tuple[float, ...] = ()


PROCESS_DURATION = Metric(
    "messaging.process.duration",
    "s",
    "Duration of one attempt to run a job.",
    # the conventions' fourteen, and more for jobs that take long
    (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300, 900, 3600),
)
QUEUE_DURATION = Metric(
    "rxjobs.job.queue.duration",
    "s",
    "How long a job could have run before an attempt began.",
    (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400),
)
ATTEMPTS = Metric("rxjobs.job.attempts", "{attempt}", "Attempts that ended, by how they ended.")
ACTIVE = Metric("rxjobs.job.active", "{job}", "Jobs that are running now.")
DEPTH = Metric("rxjobs.queue.depth", "{job}", "Jobs that stand in a queue and are not finished, as this node last saw it.")
STALE = Metric("rxjobs.ack.stale", "{job}", "Outcomes that changed nothing, since the claim they belong to is not the current one.")
STALLED = Metric(
    "rxjobs.queue.stalled", "{time}", "How often ready jobs were there, this node had room for them, and fetched none."
)
