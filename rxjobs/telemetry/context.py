"""Trace context on its way: in a job's meta from who enqueued it to its attempts, and from a process to its children."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from rxjobs.definition import NewJob

TRACEPARENT, TRACESTATE, BAGGAGE = "traceparent", "tracestate", "baggage"
VERSION_00 = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
TRACESTATE_LIMIT = 512
BAGGAGE_LIMIT = 1024
"""Bytes of baggage that are told in all."""


def stamp(news: Sequence[NewJob], of: Context) -> list[NewJob]:
    """The new jobs with this context in their meta; one that was given a context by hand keeps that."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, of)
    return [new if carrier.keys() & new.meta.keys() else msgspec.structs.replace(new, meta={**new.meta, **carrier}) for new in news]


def stored(meta: Mapping[str, Any]) -> Context | None:
    """The context that a job was enqueued in; None where there is none that can be read."""
    if not meta:
        return None
    traceparent = meta.get(TRACEPARENT)
    # by hand it takes a third of the time, which every job pays
    if isinstance(traceparent, str) and BAGGAGE not in meta and (found := VERSION_00.fullmatch(traceparent)):
        return _remote(found, meta.get(TRACESTATE))
    if propagate.get_global_textmap().fields.isdisjoint(meta):
        return None
    extracted = propagate.extract({key: value for key, value in meta.items() if isinstance(value, str)}, Context())
    return extracted if trace.get_current_span(extracted).get_span_context().is_valid else None


def linkable(trace_id: Any, span_id: Any) -> SpanContext | None:
    """The span that these hexadecimal numbers name, if they name one."""
    try:
        found = SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(TraceFlags.SAMPLED))
    except (TypeError, ValueError):
        return None
    return found if found.is_valid else None


def told_of_baggage(of: Context, keys: Iterable[str]) -> dict[str, str]:
    """What the baggage says of these keys, as far as that is short enough."""
    found: dict[str, str] = {}
    left = BAGGAGE_LIMIT
    for key in keys:
        value = baggage.get_baggage(key, of)
        if isinstance(value, str) and (size := len(value.encode())) <= left:
            found[key] = value
            left -= size
    return found


def carry() -> Mapping[str, str]:
    """The current context as text, to go along with a job to another process."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier


@contextmanager
def carried(carrier: Mapping[str, str]) -> Iterator[None]:
    """Run what is inside in the context that was carried here."""
    token = context.attach(propagate.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)


def _remote(found: re.Match[str], tracestate: Any) -> Context | None:
    trace_id, span_id, flags = (int(number, 16) for number in found.groups())
    state = None
    if isinstance(tracestate, str) and len(tracestate) <= TRACESTATE_LIMIT:
        state = TraceState.from_header([tracestate])
    span = SpanContext(trace_id, span_id, True, TraceFlags(flags), state)
    return trace.set_span_in_context(NonRecordingSpan(span), Context()) if span.is_valid else None
