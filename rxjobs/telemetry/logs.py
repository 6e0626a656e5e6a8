"""What a log record says of the job that it comes from, with OpenTelemetry's SDK and without."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from opentelemetry import context, trace

from rxjobs.job import running_job
from rxjobs.telemetry.context import told_of_baggage

FIELDS = ("job_id", "job_type", "queue", "attempt", "trace_id", "span_id")


class JobLogFilter(logging.Filter):
    """Gives records from inside a job its `job_id`, `job_type`, `queue` and `attempt`, and the `trace_id` and `span_id`.

    It is put on a handler, and lets every record through: `handler.addFilter(rj.JobLogFilter())`. Outside of a job the ids of a
    trace are told where there is one. `baggage_attributes` are keys of the baggage that become fields of the record too.
    """

    def __init__(self, baggage_attributes: Iterable[str] = ()) -> None:
        super().__init__()
        self._baggage = tuple(baggage_attributes)

    def filter(self, record: logging.LogRecord) -> bool:
        """Add to a record; it is always let through."""
        job = running_job.get(None)
        if job is not None:
            record.job_id, record.job_type, record.queue, record.attempt = job.id, job.type, job.queue, job.attempt
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            record.trace_id = trace.format_trace_id(span.trace_id)
            record.span_id = trace.format_span_id(span.span_id)
        if self._baggage:
            for key, value in told_of_baggage(context.get_current(), self._baggage).items():
                setattr(record, key, value)
        return True


def told_of_job(record: logging.LogRecord) -> dict[str, str | int]:
    """What the filter has added to a record."""
    return {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
