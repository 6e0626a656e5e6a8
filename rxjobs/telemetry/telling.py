"""Spans and log events of what is heard when it is over: fetches, acks, stages, dead letters, what runs beside the queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind

from rxjobs.events import (
    BreakerChanged,
    Event,
    JobDiscarded,
    JobsAcked,
    JobsRescued,
    LeaderLost,
    LeaderWon,
    MaintenanceEnded,
    QueueFetched,
    StageWorked,
)
from rxjobs.failure import Failure
from rxjobs.job import Job
from rxjobs.log_lines import logger
from rxjobs.telemetry import names
from rxjobs.telemetry.attempt import WORDS, attempt_of
from rxjobs.telemetry.context import stored
from rxjobs.telemetry.enqueuing import KINDS_LIMIT
from rxjobs.telemetry.failing import Logs, tell_exception
from rxjobs.telemetry.providers import Telemetry
from rxjobs.telemetry.sparing import Sparing
from rxjobs.telemetry.tracing import Tracing

log = logger("rxjobs.telemetry.telling")
log.addFilter(Sparing())

SLOW = 5_000_000
"""Work of a stage on one job that takes longer has a span, ns."""
LINKS = 128
"""The most links that OpenTelemetry's SDK keeps of one span."""


class Telling:
    """Tells by spans and log events what an app's events say. What fails in here is logged, and harms nobody."""

    def __init__(self, telemetry: Telemetry, tracing: Tracing) -> None:
        self._tracing = tracing
        self._logs = Logs(telemetry)

    def hear(self, event: Event) -> None:
        """Something has happened."""
        try:
            self._hear(event)
        except Exception:
            log.exception("%s could not be told", event.name)

    def _hear(self, event: Event) -> None:
        how = self._tracing.how
        match event:
            case QueueFetched():
                if how.fetch_spans and (event.jobs or event.error is not None):
                    more = {names.DEMAND_REQUESTED: event.requested, names.FETCH_TRIGGER: event.trigger}
                    self._batch(event, names.FETCH, names.RECEIVE, _creations(event.jobs), more)
            case JobsAcked():
                if how.ack_spans:
                    self._batch(event, names.ACK, names.SETTLE, self._attempts(event), _counted(event))
            case StageWorked():
                if how.stage_spans == "slow" or (how.stage_spans == "traced" and event.is_traced):
                    self._stage(event)
            case JobDiscarded():
                self._discarded(event)
            case MaintenanceEnded():
                if event.count or event.error is not None:
                    counted: dict[str, Any] = {names.MAINTENANCE_TASK: event.task, names.MAINTENANCE_COUNT: event.count}
                    self._over(event.task, event, Context(), counted, event.duration, event.error)
            case JobsRescued() | BreakerChanged() | LeaderWon() | LeaderLost():
                self._log(event)
            case _:
                pass

    def _batch(
        self, event: QueueFetched | JobsAcked, operation: str, kind: str, links: Sequence[Link], more: Mapping[str, Any]
    ) -> None:
        attributes = {
            names.MESSAGING_SYSTEM: names.SYSTEM,
            names.OPERATION_NAME: operation,
            names.OPERATION_TYPE: kind,
            names.DESTINATION: event.queue,
            names.MESSAGE_COUNT: len(event.jobs),
            **self._tracing.server,
            **more,
        }
        name = f"{operation} {event.queue}"
        self._over(name, event, Context(), attributes, event.duration, event.error, SpanKind.CLIENT, links)

    def _stage(self, event: StageWorked) -> None:
        if event.others:
            self._stage_of_many(event)
            return
        parent = stored(event.job.meta)
        if parent is None or not trace.get_current_span(parent).get_span_context().trace_flags.sampled:
            return
        if not (event.is_traced or event.duration > SLOW):
            return
        attributes = {names.STAGE_NAME: event.stage, names.STAGE_DISPOSITION: event.disposition, names.KIND: event.job.type}
        if event.reason:
            attributes[names.DROP_REASON] = event.reason
        self._over(f"{event.stage} {event.job.type}", event, parent, attributes, event.duration)

    def _stage_of_many(self, event: StageWorked) -> None:
        """A call for several jobs is in the trace of none: it links to where they were enqueued, as fetches do."""
        jobs = [event.job, *event.others]
        links = [link for link in _creations(jobs) if link.context.trace_flags.sampled]
        if links and (event.is_traced or event.duration > SLOW):
            attributes = {
                names.STAGE_NAME: event.stage,
                names.STAGE_DISPOSITION: event.disposition,
                names.KINDS: sorted({job.type for job in jobs})[:KINDS_LIMIT],
                names.MESSAGE_COUNT: len(jobs),
            }
            self._over(event.stage, event, Context(), attributes, event.duration, links=links)

    def _attempts(self, event: JobsAcked) -> list[Link]:
        """Links to the spans of the attempts whose outcomes were written; one that failed is tried again, and needs them too."""
        links: list[Link] = []
        for job in event.jobs:
            attempt = self._tracing.ended.find(job, is_last=event.error is None)
            if attempt is not None and len(links) < LINKS:
                links.append(Link(attempt, {names.LINK_KIND: names.LINK_ATTEMPT}))
        return links

    def _discarded(self, event: JobDiscarded) -> None:
        job, attempt = event.job, attempt_of(event.job)
        context = stored(job.meta) if attempt is None or attempt.context is None else attempt.context
        reason = names.USED_UP if job.attempt >= job.max_attempts else names.UNRECOVERABLE
        of = {names.DESTINATION: job.queue, names.KIND: job.type, names.ATTEMPT: job.attempt, names.DISCARD_REASON: reason}
        if context is not None and trace.get_current_span(context).get_span_context().trace_flags.sampled:
            self._over(f"discard {job.queue}", event, context, {**of, names.MESSAGE_ID: str(job.id)}, 0)
        if self._logs.are_on:
            self._logs.tell(names.JOB_DISCARDED, {names.JOB_ID: str(job.id), **of}, context)

    def _log(self, event: JobsRescued | BreakerChanged | LeaderWon | LeaderLost) -> None:
        if isinstance(event, BreakerChanged):
            told: dict[str, Any] = {
                names.BREAKER_NAME: event.type,
                names.BREAKER_BEFORE: event.before.replace("-", "_"),
                names.BREAKER_STATE: event.after.replace("-", "_"),
                names.BREAKER_FAILURES: event.failures,
                names.BREAKER_OPEN_SECONDS: event.open_seconds,
            }
            trace.get_current_span().add_event(names.SPAN_BREAKER, told)  # of the attempt whose end moved it
            if self._logs.are_on:
                self._logs.tell(names.BREAKER_MOVED, told)
        elif not self._logs.are_on:
            return
        elif isinstance(event, JobsRescued):
            why = {names.WORKER: event.node, names.RESCUE_REASON: event.reason}
            for id_ in event.ids:
                self._logs.tell(names.JOB_RESCUED, {names.JOB_ID: str(id_), **why})
        else:
            change = names.ACQUIRED if isinstance(event, LeaderWon) else names.LOST
            of = {names.WORKER: event.node, names.LEADER_EVENT: change, names.LEADER_TERM: event.term}
            self._logs.tell(names.LEADER_CHANGED, of)

    def _over(
        self,
        name: str,
        event: Event,
        parent: Context,
        attributes: Mapping[str, Any],
        duration: int,
        error: Failure | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
    ) -> None:
        """A span of what has ended by now."""
        if not self._tracing.may_record():
            return
        began = event.system_time - duration
        span: Span = self._tracing.tracer.start_span(name, parent, kind, attributes, links, began)
        if error is not None:
            tell_exception(span, error)
        span.end(event.system_time)


def _counted(event: JobsAcked) -> dict[str, int]:
    """How many of a batch ended how."""
    return {names.ACKED_AS[word]: count for name, count in event.outcomes.items() if (word := WORDS.get(name)) is not None}


def _creations(jobs: Iterable[Job]) -> list[Link]:
    """Links to where jobs were enqueued, as many as a span keeps."""
    links: list[Link] = []
    for job in jobs:
        found = stored(job.meta)
        if found is not None:
            enqueued: SpanContext = trace.get_current_span(found).get_span_context()
            links.append(Link(enqueued, {names.LINK_KIND: names.LINK_ENQUEUE}))
            if len(links) == LINKS:
                break
    return links
