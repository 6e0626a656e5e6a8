"""Have what a node asks its database by itself, again and again for ever, begin no traces.

Whoever has asyncpg instrumented would get a trace of each poll, and a span of each in the trace that an app was started in. Its
instrumentation heeds no wish to be left alone, but all samplers that heed the parent leave out what is below a span that is not
recorded: so that is what those statements are put below. What belongs to somebody's trace, such as an enqueue, stays in it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, Span, SpanContext, TraceFlags

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


def asked(ask: Callable[..., Awaitable[Any]], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Awaitable[Any]:
    """What a statement gives, which begins no trace where it is the node's own."""
    where = _quieted()
    return ask(*args, **kwargs) if where is None else _asked_in(where, ask, args, kwargs)


async def _asked_in(where: Context, ask: Callable[..., Awaitable[Any]], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    token = context.attach(where)
    try:
        return await ask(*args, **kwargs)
    finally:
        context.detach(token)


def _quieted() -> Context | None:
    """The context to ask something in that is the node's own affair; None where it is somebody's."""
    outside = _outside.get()
    if outside is None:
        return None
    here = context.get_current()
    if not here and outside is INVALID_SPAN:  # so it is for nearly all that a node asks
        return QUIET
    return _quiet(here) if trace.get_current_span(here) is outside else None


def _quiet(here: Context) -> Context:
    return context.set_value(SUPPRESSED, True, trace.set_span_in_context(UNRECORDED, here))


QUIET = _quiet(Context())
"""The context of what is asked where there is no other."""
