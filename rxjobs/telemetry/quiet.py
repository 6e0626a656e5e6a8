"""Have what a node asks its database by itself, again and again for ever, begin no traces.

Whoever has asyncpg instrumented would get a trace of each poll, and a span of each in the trace that an app was started in. Its
instrumentation heeds no wish to be left alone, but all samplers that heed the parent leave out what is below a span that is not
recorded: so that is what those statements are put below. What belongs to somebody's trace, such as an enqueue, stays in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry import context, trace
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags

SUPPRESSED = "suppress_instrumentation"
"""Where instrumentations look whether they are wanted."""
UNRECORDED = NonRecordingSpan(SpanContext(1, 1, False, TraceFlags(TraceFlags.DEFAULT)))

_outside: ContextVar[Span | None] = ContextVar("rxjobs_outside", default=None)
"""The span that a node was started in, or none: what belongs to no other is the node's own affair."""


@contextmanager
def node_starts() -> Iterator[None]:
    """A node starts inside: what is begun there, and asks without being in a span of its own, is quiet from then on."""
    token = _outside.set(trace.get_current_span())
    try:
        yield
    finally:
        _outside.reset(token)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep a statement inside from beginning a trace, where it is the node's own."""
    if trace.get_current_span() is not _outside.get():
        yield
        return
    token = context.attach(context.set_value(SUPPRESSED, True, trace.set_span_in_context(UNRECORDED)))
    try:
        yield
    finally:
        context.detach(token)
