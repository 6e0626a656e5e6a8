"""The span around each attempt, in one trace from the enqueuer through all the retries, or in linked ones."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanContext, SpanKind

from rxjobs.decide import raised
from rxjobs.definition import Definition
from rxjobs.demand import now
from rxjobs.failure import MESSAGE_LIMIT, Failure, clean
from rxjobs.job import Job
from rxjobs.log_lines import logger
from rxjobs.outcome import Discard, Outcome, Release, Retry
from rxjobs.perform import Around, Middleware, Next, waited
from rxjobs.telemetry import names
from rxjobs.telemetry.attempt import Attempt, Ended, TracedFailure, begin, outcome_name
from rxjobs.telemetry.context import linkable, stored, told_of_baggage
from rxjobs.telemetry.failing import Failing
from rxjobs.telemetry.providers import Mode, Telemetry, is_set
from rxjobs.telemetry.sparing import Sparing

log = logger("rxjobs.telemetry.tracing")
log.addFilter(Sparing())  # of its own: what is rare must not go under in what fails with each job

LOOK_SECONDS = 1.0
"""Within so many seconds it is noticed that the process was given a provider: to look at each job is dear."""
CONVERSATION = "conversation_id"
"""What a job's meta names the work by that several jobs belong to."""
CONTINUED = 5
"""So many attempts continue the trace of their enqueue; those after them link to it, since no trace is to grow for ever."""
EXECUTORS = {"loop": names.ON_LOOP, "thread": names.IN_THREAD, "process": names.IN_PROCESS, "pool": names.IN_POOL}


class Tracing:
    """The spans around an app's attempts. What fails in here is logged, and harms no job."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.how = telemetry.how()
        self.tracer = telemetry.tracer
        self.server: Mapping[str, str | int] = {}
        """Where the database is and who asks it, once that is known."""
        self.ended = Ended()
        """Attempts that no ack has told of yet; only where acks have spans."""
        self._failing = Failing(telemetry)
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
        executor = getattr(definition.how.executor, "name", "loop" if definition.is_async else "thread")
        fixed[names.EXECUTOR] = EXECUTORS.get(executor, names.IN_POOL)
        mode: Mode = definition.how.trace or self.how.trace

        def around(call_next: Next) -> Next:
            def run(job: Job) -> Awaitable[Outcome]:
                # most jobs of most apps are part of no trace, and pay nothing for those that are
                may_record = self._is_on or (time.monotonic() >= self._look_again and self.may_record())
                return traced(job, call_next) if may_record or job.meta else call_next(job)

            return run

        async def traced(job: Job, call_next: Next) -> Outcome:
            attempt = begin(job)
            span = self._begin(job, fixed, attempt, mode)
            if span is None or attempt.context is None:
                return await call_next(job)
            token = context.attach(attempt.context)
            try:
                outcome = await call_next(job)
            except asyncio.CancelledError:
                self._end(span, job, Release(), attempt)
                raise
            except BaseException as error:  # a middleware of the app's own may raise
                outcome = raised(job, error)
            finally:
                context.detach(token)
            outcome = _traced(outcome, span.get_span_context())
            self._end(span, job, outcome, attempt)
            return outcome

        return Around(around)

    def may_record(self) -> bool:
        """Whether there is anybody to record spans for."""
        if not self._is_on and time.monotonic() >= self._look_again:
            self._look_again = time.monotonic() + LOOK_SECONDS
            return self.is_on()
        return self._is_on

    def is_on(self) -> bool:
        """The same, looked at now."""
        self._is_on = self._is_on or is_set(trace.get_tracer_provider())
        return self._is_on

    def _begin(self, job: Job, fixed: Mapping[str, Any], attempt: Attempt, mode: Mode) -> Span | None:
        """The span of an attempt, which is current in the attempt's context; None where there is no trace to be part of."""
        try:
            enqueued_in, creation = stored(job.meta), None
            if enqueued_in is not None:
                enqueuer = trace.get_current_span(enqueued_in)
                creation = enqueuer.get_span_context()
                if mode == "continue" and self._is_long_ago(job):
                    mode = "link"
                if not self.may_record() or (mode == "continue" and not creation.trace_flags.sampled):
                    # start_span would come to the same end, and cost three times as much
                    attempt.context = enqueued_in
                    return enqueuer
            elif not self.may_record():
                return None
            parent = enqueued_in or Context()
            if mode != "continue":  # what else is stored, such as baggage, stays
                parent = trace.set_span_in_context(INVALID_SPAN, parent)
            span = self.tracer.start_span(
                f"{names.PROCESS} {job.type if self.how.names_kind else job.queue}",
                parent,
                SpanKind.CONSUMER,
                {**fixed, **self.server, **_attributes(job), **told_of_baggage(parent, self.how.baggage_attributes)},
                _links(job, creation) if mode != "none" else [],
            )
        except Exception:
            log.exception("no span could be started for job %s (%s)", job.id, job.type)
            return None
        if not span.get_span_context().is_valid:
            return None
        attempt.context = trace.set_span_in_context(span, enqueued_in)
        return span

    def _is_long_ago(self, job: Job) -> bool:
        """Whether so much has happened since a job was enqueued that this attempt begins a trace of its own."""
        if job.attempt > CONTINUED:
            return True
        if job.attempted_at is None or job.inserted_at is None:
            return False
        return (job.attempted_at - job.inserted_at).total_seconds() > self.how.trace_max_age

    def _end(self, span: Span, job: Job, outcome: Outcome, attempt: Attempt) -> None:
        try:
            if isinstance(outcome, Retry | Discard) and outcome.failure is not None:
                self._failing.tell(span, job, outcome.failure, attempt.context)
            if span.is_recording():
                span.set_attribute(names.OUTCOME, outcome_name(outcome, attempt))
                if isinstance(outcome, Retry):
                    span.set_attribute(names.RETRY_AT, (datetime.now(UTC) + timedelta(seconds=outcome.delay or 0.0)).isoformat())
                if job.hold is not None and getattr(job.hold, "is_lost", False):
                    span.add_event(names.SPAN_HEARTBEAT_LOST)
                span.end()
                if self.how.ack_spans:
                    self.ended.add(job, span.get_span_context())
        except Exception:
            log.exception("a span could not be ended")


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
    if (conversation := job.meta.get(CONVERSATION)) is not None:
        attributes[names.CONVERSATION_ID] = str(conversation)
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
