"""When attempts continue the trace of their enqueue, and when they link to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

import rxjobs as rj
from rxjobs.telemetry.sampling import LinkAwareSampler
from rxjobs.testing.jobs import a_job

A_TRACE, A_SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
SAMPLED = {"traceparent": f"00-{A_TRACE:032x}-{A_SPAN:016x}-01"}
UNSAMPLED = {"traceparent": f"00-{A_TRACE:032x}-{A_SPAN:016x}-00"}
PREVIOUS = {"trace_id": f"{5:032x}", "span_id": f"{6:016x}"}


async def process(provider, spans, of_app, of_type=None, meta=SAMPLED, **fields):
    """The span of an attempt at a job with these fields."""
    app = rj.App("postgresql://nowhere", telemetry=rj.Telemetry(tracer_provider=provider, **of_app))

    @app.job(name="work", trace=of_type, breaker=None)
    async def work():
        raise LookupError

    finished = await work.perform(a_job(definition=work, meta=meta, errors=(PREVIOUS,), **fields), None)
    (span,) = [span for span in spans.get_finished_spans() if span.name.startswith("process")]
    assert finished.outcome.failure.trace_id == f"{span.context.trace_id:032x}"
    return span


def links(span):
    return [(link.attributes["rxjobs.link.kind"], link.context.span_id) for link in span.links]


BOTH = [("enqueue", A_SPAN), ("previous_attempt", 6)]
NOW = datetime.now(UTC)


@pytest.mark.parametrize(
    ("of_app", "of_type", "fields", "continues"),
    [
        ({}, None, {}, True),
        ({"trace": "link"}, None, {}, False),
        ({"trace": "link"}, "continue", {}, True),
        ({}, "link", {}, False),
        ({}, None, {"attempt": 5}, True),
        ({}, None, {"attempt": 6}, False),
        ({}, None, {"inserted_at": NOW - timedelta(minutes=59), "attempted_at": NOW}, True),
        ({}, None, {"inserted_at": NOW - timedelta(minutes=61), "attempted_at": NOW}, False),
        ({"trace_max_age": 60.0}, None, {"inserted_at": NOW - timedelta(seconds=61), "attempted_at": NOW}, False),
    ],
)
async def test_an_attempt_continues_the_trace_unless_it_is_asked_or_too_late_for_that(
    tracer_provider, spans, of_app, of_type, fields, continues
):
    span = await process(tracer_provider, spans, of_app, of_type, **{"attempt": 2, **fields})
    assert (span.context.trace_id == A_TRACE) == continues
    assert (span.parent is not None and span.parent.span_id == A_SPAN) == continues
    assert links(span) == BOTH


async def test_an_attempt_that_is_to_have_nothing_to_do_with_its_enqueue_has_no_links(tracer_provider, spans):
    span = await process(tracer_provider, spans, {}, "none", attempt=2)
    assert (span.parent, links(span)) == (None, [])
    assert span.context.trace_id != A_TRACE


@pytest.mark.parametrize(("meta", "is_recorded"), [(SAMPLED, True), (UNSAMPLED, False)])
async def test_a_linked_attempt_is_recorded_where_its_enqueue_is(spans, meta, is_recorded):
    provider = TracerProvider(sampler=LinkAwareSampler(ParentBased(ALWAYS_OFF)), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    app = rj.App("postgresql://nowhere", telemetry=rj.Telemetry(tracer_provider=provider, trace="link"))

    @app.job(name="work")
    async def work(): ...

    await work.perform(a_job(definition=work, meta=meta), None)
    assert len(spans.get_finished_spans()) == is_recorded


async def test_a_child_of_what_is_not_recorded_is_not_recorded_whatever_it_links_to(spans, tracer_provider):
    sampler = LinkAwareSampler(ParentBased(ALWAYS_OFF))
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    with tracer_provider.get_tracer("a").start_as_current_span("recorded") as recorded:
        link = rj_link(recorded)
    with provider.get_tracer("b").start_as_current_span("unrecorded"):
        child = provider.get_tracer("b").start_span("child", links=[link])
    assert not child.is_recording()
    assert "LinkAwareSampler{ParentBased" in sampler.get_description()


def rj_link(span):
    from opentelemetry.trace import Link

    return Link(span.get_span_context())


async def test_a_span_can_be_named_by_its_job_type_and_tell_of_chosen_baggage(tracer_provider, spans):
    baggage = {**SAMPLED, "baggage": f"tenant.id=7,long={'x' * 2000},secret=8"}
    options = {"span_name": "kind", "baggage_attributes": ("tenant.id", "long", "missing")}
    span = await process(tracer_provider, spans, options, meta=baggage)
    assert span.name == "process work"
    assert span.attributes["tenant.id"] == "7"
    assert not {"long", "secret", "missing"} & span.attributes.keys()
