"""How a failure is told: on the span that failed, and as a log event where that is asked for."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from opentelemetry import _logs
from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode

from rxjobs.failure import Failure
from rxjobs.job import Job
from rxjobs.telemetry import names
from rxjobs.telemetry.providers import Telemetry, is_set

STACKTRACE_LIMIT = 8 * 1024
OPT_IN = "OTEL_SEMCONV_EXCEPTION_SIGNAL_OPT_IN"
STORM = 50
"""So many failures of a job type within a second keep their tracebacks; of those beyond, only class and message are told."""
TIMEOUT = "TimeoutError"


class Failing:
    """How an app's failed attempts are told."""

    def __init__(self, telemetry: Telemetry, environ: Mapping[str, str] = os.environ) -> None:
        asked = {word.strip() for word in environ.get(OPT_IN, "").split(",")}
        self._by_log = bool(asked & {"logs", "logs/dup"})
        self._by_span = "logs" not in asked or "logs/dup" in asked
        self._logs = Logs(telemetry)
        self._storms: dict[str, tuple[int, int]] = {}

    def tell(self, span: Span, job: Job, failure: Failure, context: Context | None) -> None:
        """An attempt failed."""
        is_recording = span.is_recording()
        logs = self._by_log and self._logs.are_on
        if not (is_recording or logs):
            return
        exception = _exception(failure, is_whole=not self._is_in_storm(job.type))
        if is_recording:
            if self._by_span:
                # not record_exception: the text is there already, and to format it again is the dearest thing a span can do
                span.add_event(names.EXCEPTION_EVENT, exception)
            if failure.type == TIMEOUT and job.definition is not None and job.definition.how.timeout is not None:
                span.add_event(names.SPAN_TIMEOUT)
            fail(span, failure)
        if logs:
            of = {names.KIND: job.type, names.DESTINATION: job.queue, names.MESSAGE_ID: str(job.id)}
            self._logs.tell(names.PROCESS_EXCEPTION, {**exception, **of}, context)

    def _is_in_storm(self, kind: str) -> bool:
        second = int(time.monotonic())
        began, count = self._storms.get(kind, (second, 0))
        count = count + 1 if began == second else 1
        self._storms[kind] = second, count
        return count > STORM


class Logs:
    """Log events with names of their own."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._logger = telemetry.logger
        self._provider = telemetry.logger_provider

    @property
    def are_on(self) -> bool:
        """Whether anybody takes them."""
        return self._provider is not None or is_set(_logs.get_logger_provider())

    def tell(self, event: names.LogEvent, attributes: Mapping[str, Any], context: Context | None = None) -> None:
        """Tell of an event, in the context that it happened in, if not the current one."""
        self._logger.emit(
            event_name=event.name, severity_number=SeverityNumber[event.severity], severity_text=event.severity,
            body=event.description, attributes=attributes, context=context, timestamp=time.time_ns(),
        )  # fmt: skip


def fail(span: Span, failure: Failure) -> None:
    """Have a span say that what it is about failed."""
    span.set_attribute(names.ERROR_TYPE, failure.type)
    span.set_status(Status(StatusCode.ERROR, failure.message))


def tell_exception(span: Span, failure: Failure) -> None:
    """The same, with the exception as an event."""
    span.add_event(names.EXCEPTION_EVENT, _exception(failure, is_whole=True))
    fail(span, failure)


def _exception(failure: Failure, *, is_whole: bool) -> dict[str, str]:
    told = {names.EXCEPTION_TYPE: failure.type, names.EXCEPTION_MESSAGE: failure.message}
    return {**told, names.EXCEPTION_STACKTRACE: failure.traceback[-STACKTRACE_LIMIT:]} if is_whole else told
