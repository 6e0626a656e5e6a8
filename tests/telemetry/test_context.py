"""Trace context in a job's meta, and to other processes."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

import rxjobs as rj
from rxjobs.calls import Call
from rxjobs.telemetry import context
from rxjobs.testing.jobs import a_job, job_type

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def a_context(flags=1, state=None):
    span = SpanContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, True, TraceFlags(flags), state)
    return trace.set_span_in_context(NonRecordingSpan(span), Context())


def a_new_job(**meta):
    return rj.NewJob(type="t", queue="q", payload="{}", meta=meta)


def span_of(found):
    return trace.get_current_span(found).get_span_context()


def test_what_is_stamped_on_a_job_is_read_back():
    state = TraceState([("vendor", "7")])
    (stamped,) = context.stamp([a_new_job(own=1)], a_context(state=state))
    assert stamped.meta == {"own": 1, "traceparent": TRACEPARENT, "tracestate": "vendor=7"}
    assert span_of(context.stored(stamped.meta)) == span_of(a_context(state=state))


def test_baggage_goes_along():
    (stamped,) = context.stamp([a_new_job()], baggage.set_baggage("tenant", "7", a_context()))
    found = context.stored(stamped.meta)
    assert span_of(found) == span_of(a_context())
    assert baggage.get_all(found) == {"tenant": "7"}


@pytest.mark.parametrize("meta", [{"traceparent": "by hand"}, {"tracestate": "a=b"}])
def test_a_job_with_any_context_of_its_own_is_not_stamped(meta):
    (stamped,) = context.stamp([a_new_job(**meta)], a_context(state=TraceState([("vendor", "7")])))
    assert stamped.meta == meta


@given(
    st.one_of(
        st.text(max_size=60),
        st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,3})?", fullmatch=True),
        st.from_regex(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", fullmatch=True),
        st.sampled_from([TRACEPARENT, f"00-{'0' * 32}-b7ad6b7169203331-01", f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01"]),
    ),
    st.one_of(st.none(), st.text(max_size=40), st.sampled_from(["a=b", "a=b,c=d", "x" * 600])),
)
def test_the_parser_by_hand_agrees_with_the_propagator(traceparent, tracestate):
    meta = {"traceparent": traceparent} | ({} if tracestate is None else {"tracestate": tracestate})
    found = context.stored(meta)
    assert span_of(found if found is not None else Context()) == span_of(propagate.extract(meta, Context()))


@pytest.mark.parametrize("meta", [{}, {"own": 1}, {"traceparent": 7}, {"traceparent": None}, {"traceparent": [TRACEPARENT, 1]}])
def test_meta_without_a_context_that_can_be_read_has_none(meta):
    assert context.stored(meta) is None


def look():
    return f"{trace.get_current_span().get_span_context().trace_id:032x}"


async def test_a_job_in_another_process_runs_in_the_trace_of_its_attempt():
    executor = rj.in_processes(1)
    with trace.use_span(trace.get_current_span(a_context())):
        seen = await executor.run(Call(look, a_job(definition=job_type(look))))
    assert seen == "0af7651916cd43dd8448eb211c80319c"
    await executor.close()
    assert not asyncio.all_tasks() - {asyncio.current_task()}
