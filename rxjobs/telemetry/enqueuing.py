"""The spans around what is enqueued. The context that goes with a job is that of its own span, where it has one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind

from rxjobs.definition import NewJob, enqueuing_for
from rxjobs.enqueued import Enqueued
from rxjobs.failure import describe
from rxjobs.log_lines import logger
from rxjobs.telemetry import names
from rxjobs.telemetry.context import stamp, told_of_baggage
from rxjobs.telemetry.failing import tell_exception
from rxjobs.telemetry.sparing import Sparing
from rxjobs.telemetry.tracing import Tracing

log = logger("rxjobs.telemetry.enqueuing")
log.addFilter(Sparing())

KINDS_LIMIT = 10


class Enqueuing:
    """The spans of an app's enqueues."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def around_insert(
        self, news: Sequence[NewJob], insert: Callable[[Sequence[NewJob]], Awaitable[list[Enqueued]]]
    ) -> Awaitable[list[Enqueued]]:
        """The `enqueue {queue}` span around an insert, and of a small batch a `create {queue}` span of each job."""
        # where nothing is recorded, and nothing is to be passed on, there is no span: nearly all that is enqueued pays for no more
        begun = self._begin(news) if context.get_current() or self._tracing.is_on() else None
        return insert(news) if begun is None else self._inside(begun, insert)

    async def _inside(self, begun: _Insert, insert: Callable[[Sequence[NewJob]], Awaitable[list[Enqueued]]]) -> list[Enqueued]:
        token = context.attach(begun.context)
        try:
            rows = await insert(begun.news)
        except BaseException as error:
            begun.end([], error)
            raise
        finally:
            context.detach(token)
        begun.end(rows)
        return rows

    def _begin(self, news: Sequence[NewJob]) -> _Insert | None:
        if not news:
            return None
        try:
            how, tracer = self._tracing.how, self._tracing.tracer
            # nobody waits for what cron enqueues: it is not of the trace that its node was started in
            parent = context.get_current() if enqueuing_for.get() is None else Context()
            ambient = trace.get_current_span(parent).get_span_context()
            name, attributes = _describe(news)
            attributes |= {**self._tracing.server, **told_of_baggage(parent, how.baggage_attributes)}
            created: list[Span] = []
            # where nothing is recorded, one context is as good as many
            is_recorded = self._tracing.may_record() and not (ambient.is_valid and not ambient.trace_flags.sampled)
            if 1 < len(news) <= how.create_span_limit and is_recorded:
                created = [self._create(new, parent) for new in news]
            if created:
                links = [Link(one.get_span_context()) for one in created]
                span = tracer.start_span(name, parent, SpanKind.CLIENT, attributes, links)
            else:
                span = tracer.start_span(name, parent, SpanKind.PRODUCER, attributes)
            if not span.get_span_context().is_valid:
                return None
            here = trace.set_span_in_context(span, parent)
            contexts = [trace.set_span_in_context(one, parent) for one in created]
            stamped = [stamp([new], of)[0] for new, of in zip(news, contexts, strict=True)] if created else stamp(news, here)
            return _Insert(span, here, created, stamped)
        except Exception:
            log.exception("no span could be started for what is enqueued")
            return None

    def _create(self, new: NewJob, parent: Context) -> Span:
        attributes: dict[str, Any] = {
            names.MESSAGING_SYSTEM: names.SYSTEM,
            names.OPERATION_NAME: names.CREATE,
            names.OPERATION_TYPE: names.CREATE,
            names.DESTINATION: new.queue,
            names.KIND: new.type,
            **self._tracing.server,
        }
        return self._tracing.tracer.start_span(f"{names.CREATE} {new.queue}", parent, SpanKind.PRODUCER, attributes)


class _Insert:
    """One insert that has begun."""

    def __init__(self, span: Span, here: Context, created: Sequence[Span], news: list[NewJob]) -> None:
        self.context = here
        self.news = news
        self._span = span
        self._created = created
        self._created_at = time.time_ns()

    def end(self, rows: Sequence[Enqueued], error: BaseException | None = None) -> None:
        """It has ended."""
        try:
            for span, row in zip(self._created, rows, strict=False):
                span.set_attribute(names.MESSAGE_ID, str(row.id))
            for span in self._created:
                span.end(self._created_at)
            span = self._span
            if span.is_recording():
                if len(rows) == 1:
                    span.set_attribute(names.MESSAGE_ID, str(rows[0].id))
                    span.set_attribute(names.ENQUEUE_RESULT, result_of(self.news[0], rows[0]))
                if error is not None:
                    tell_exception(span, describe(error))
            span.end()
        except Exception:
            log.exception("a span could not be ended")


def result_of(new: NewJob, row: Enqueued) -> str:
    """What came of enqueueing a job."""
    if not row.duplicate:
        return names.INSERTED
    return names.REPLACED if new.unique is not None and new.unique.replace else names.DEDUPLICATED


def _describe(news: Sequence[NewJob]) -> tuple[str, dict[str, Any]]:
    first = news[0]
    attributes: dict[str, Any] = {
        names.MESSAGING_SYSTEM: names.SYSTEM,
        names.OPERATION_NAME: names.ENQUEUE,
        names.OPERATION_TYPE: names.SEND,
    }
    is_one_queue = all(new.queue == first.queue for new in news)
    if is_one_queue:
        attributes[names.DESTINATION] = first.queue
    if (cron := enqueuing_for.get()) is not None:
        attributes[names.CRON_NAME] = cron
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
