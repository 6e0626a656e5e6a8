"""Spans around what is enqueued and around each attempt, in one trace from the enqueuer through all the retries."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode

from rxjobs.decide import raised
from rxjobs.definition import Definition, Enqueued, NewJob
from rxjobs.demand import now
from rxjobs.failure import MESSAGE_LIMIT, Failure, clean, describe
from rxjobs.job import Job
from rxjobs.outcome import Discard, Outcome, Release, Retry
from rxjobs.perform import Middleware, Next, waited
from rxjobs.telemetry import names
from rxjobs.telemetry.attempt import Attempt, TracedFailure, begin, outcome_name
from rxjobs.telemetry.context import linkable, stamp, stored
from rxjobs.telemetry.providers import Telemetry, is_set
from rxjobs.telemetry.sparing import Sparing

log = logging.getLogger("rxjobs.telemetry")
log.addFilter(Sparing())

STACKTRACE_LIMIT = 8 * 1024
KINDS_LIMIT = 10
LOOK_SECONDS = 1.0
"""Within so many seconds it is noticed that the process was given a provider: to look at each job is dear."""


class Tracing:
    """The spans of an app. What fails in here is logged, and harms no job."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._tracer = telemetry.tracer
        self._is_on = telemetry.tracer_provider is not None
        self._look_again = 0.0

    def middleware(self, definition: Definition[..., Any]) -> Middleware:
        """The `process {queue}` span around each attempt at jobs of one type."""
        function = definition.function
        fixed = {
            names.MESSAGING_SYSTEM: names.SYSTEM,
            names.OPERATION_NAME: names.PROCESS,
            names.OPERATION_TYPE: names.PROCESS,
            names.KIND: definition.name,
            names.CODE_FUNCTION: f"{function.__module__}.{function.__qualname__}",
        }

        def middleware(job: Job, call_next: Next) -> Awaitable[Outcome]:
            # most jobs of most apps are part of no trace, and pay nothing for those that are
            return traced(job, call_next) if job.meta or self._may_record() else call_next(job)

        async def traced(job: Job, call_next: Next) -> Outcome:
            attempt = begin(job)
            span = self._begin(job, fixed, attempt)
            if span is None or attempt.context is None:
                return await call_next(job)
            token = context.attach(attempt.context)
            try:
                outcome = await call_next(job)
            except asyncio.CancelledError:
                _end(span, Release(), attempt)
                raise
            except BaseException as error:  # a middleware of the app's own may raise
                outcome = raised(job, error)
            finally:
                context.detach(token)
            outcome = _traced(outcome, span.get_span_context())
            _end(span, outcome, attempt)
            return outcome

        return middleware

    async def around_insert(
        self, news: Sequence[NewJob], insert: Callable[[Sequence[NewJob]], Awaitable[list[Enqueued]]]
    ) -> list[Enqueued]:
        """The `enqueue {queue}` span around an insert; its context goes with every job."""
        begun = self._begin_insert(news)
        if begun is None:
            return await insert(news)
        span, here, stamped = begun
        token = context.attach(here)
        try:
            rows = await insert(stamped)
        except BaseException as error:
            _end_insert(span, [], error)
            raise
        finally:
            context.detach(token)
        _end_insert(span, rows)
        return rows

    def _begin(self, job: Job, fixed: Mapping[str, Any], attempt: Attempt) -> Span | None:
        """The span of an attempt, which is current in the attempt's context; None where there is no trace to be part of."""
        try:
            enqueued_in, creation = stored(job.meta), None
            if enqueued_in is not None:
                enqueuer = trace.get_current_span(enqueued_in)
                creation = enqueuer.get_span_context()
                if not (creation.trace_flags.sampled and self._may_record()):
                    # start_span would come to the same end, and cost three times as much
                    attempt.context = enqueued_in
                    return enqueuer
            elif not self._may_record():
                return None
            span = self._tracer.start_span(
                f"{names.PROCESS} {job.queue}",
                enqueued_in or Context(),
                SpanKind.CONSUMER,
                {**fixed, **_attributes(job)},
                _links(job, creation),
            )
        except Exception:
            log.exception("no span could be started for job %s (%s)", job.id, job.type)
            return None
        if not span.get_span_context().is_valid:
            return None
        attempt.context = trace.set_span_in_context(span, enqueued_in)
        return span

    def _begin_insert(self, news: Sequence[NewJob]) -> tuple[Span, Context, list[NewJob]] | None:
        if not news:
            return None
        try:
            name, attributes = _describe_insert(news)
            span = self._tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=attributes)
            if not span.get_span_context().is_valid:
                return None
            here = trace.set_span_in_context(span)
            return span, here, stamp(news, here)
        except Exception:
            log.exception("no span could be started for what is enqueued")
            return None

    def _may_record(self) -> bool:
        if not self._is_on and time.monotonic() >= self._look_again:
            self._look_again = time.monotonic() + LOOK_SECONDS
            self._is_on = is_set(trace.get_tracer_provider())
        return self._is_on


def _attributes(job: Job) -> dict[str, Any]:
    attributes = {
        names.DESTINATION: job.queue,
        names.MESSAGE_ID: str(job.id),
        names.ATTEMPT: job.attempt,
        names.MAX_ATTEMPTS: job.max_attempts,
        names.PRIORITY: job.priority,
        names.QUEUE_TIME: waited(job, now()) / 1e9,
    }
    if job.node is not None:
        attributes[names.WORKER] = str(job.node)
    return attributes


def _links(job: Job, creation: SpanContext | None) -> list[Link]:
    """What led to this attempt: the enqueue, the attempt before, and the span that this process itself is in."""
    previous = None
    if job.errors:
        last = job.errors[-1]
        previous = linkable(last.get("trace_id"), last.get("span_id"))
    ambient = trace.get_current_span().get_span_context()
    causes = [(creation, names.LINK_ENQUEUE), (previous, names.LINK_PREVIOUS)]
    if ambient.is_valid and ambient.trace_flags.sampled:
        causes.append((ambient, names.LINK_AMBIENT))
    return [Link(cause, {names.LINK_KIND: kind}) for cause, kind in causes if cause is not None]


def _traced(outcome: Outcome, span: SpanContext) -> Outcome:
    """The outcome with a failure that names its trace; a new one, since a job may return one outcome over and over."""
    if not isinstance(outcome, Retry | Discard):
        return outcome
    failure = outcome.failure or Failure(f"rxjobs.{type(outcome).__name__}", clean(str(outcome.reason), MESSAGE_LIMIT))
    traced = TracedFailure(
        **{
            **msgspec.structs.asdict(failure),
            "trace_id": trace.format_trace_id(span.trace_id),
            "span_id": trace.format_span_id(span.span_id) if span.trace_flags.sampled else None,
        }
    )
    return dataclasses.replace(outcome, failure=traced)


def _end(span: Span, outcome: Outcome, attempt: Attempt) -> None:
    try:
        if span.is_recording():
            span.set_attribute(names.OUTCOME, outcome_name(outcome, attempt))
            match outcome:
                case Retry(failure=Failure() as failure, delay=delay):
                    span.set_attribute(names.RETRY_AT, (datetime.now(UTC) + timedelta(seconds=delay or 0.0)).isoformat())
                    _fail(span, failure)
                case Discard(failure=Failure() as failure):
                    _fail(span, failure)
                case _:  # whatever else happened was no error, and success has no status
                    pass
        span.end()
    except Exception:
        log.exception("a span could not be ended")


def _describe_insert(news: Sequence[NewJob]) -> tuple[str, dict[str, Any]]:
    first = news[0]
    attributes: dict[str, Any] = {
        names.MESSAGING_SYSTEM: names.SYSTEM,
        names.OPERATION_NAME: names.ENQUEUE,
        names.OPERATION_TYPE: "send",
    }
    is_one_queue = all(new.queue == first.queue for new in news)
    if is_one_queue:
        attributes[names.DESTINATION] = first.queue
    if len(news) == 1:
        attributes[names.KIND] = first.type
        attributes[names.PRIORITY] = first.priority
        if first.scheduled_at is not None:
            attributes[names.SCHEDULED_AT] = first.scheduled_at.isoformat()
        elif first.delay:
            attributes[names.SCHEDULED_AT] = (datetime.now(UTC) + timedelta(seconds=first.delay)).isoformat()
    else:
        attributes[names.MESSAGE_COUNT] = len(news)
        attributes[names.KINDS] = sorted({new.type for new in news})[:KINDS_LIMIT]
    return f"{names.ENQUEUE} {first.queue}" if is_one_queue else names.ENQUEUE, attributes


def _end_insert(span: Span, rows: Sequence[Enqueued], error: BaseException | None = None) -> None:
    try:
        if span.is_recording():
            if len(rows) == 1:
                span.set_attribute(names.MESSAGE_ID, str(rows[0].id))
                span.set_attribute(names.ENQUEUE_RESULT, names.DEDUPLICATED if rows[0].duplicate else names.INSERTED)
            if error is not None:
                _fail(span, describe(error))
        span.end()
    except Exception:
        log.exception("a span could not be ended")


def _fail(span: Span, failure: Failure) -> None:
    # not record_exception: the text is there already, and to format it again is the dearest thing a span can do
    span.add_event(
        names.EXCEPTION_EVENT,
        {
            names.EXCEPTION_TYPE: failure.type,
            names.EXCEPTION_MESSAGE: failure.message,
            names.EXCEPTION_STACKTRACE: failure.traceback[-STACKTRACE_LIMIT:],
        },
    )
    span.set_attribute(names.ERROR_TYPE, failure.type)
    span.set_status(Status(StatusCode.ERROR, failure.message))
