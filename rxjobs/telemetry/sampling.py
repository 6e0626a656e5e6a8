"""Sampling where attempts link to their enqueue instead of continuing its trace."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes


class LinkAwareSampler(Sampler):
    """Records a new trace that links to a recorded one; else what the other sampler says.

    Otherwise, of one per cent of the enqueues and one per cent of the attempts, hardly any would be of the same job.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Whether a span is recorded."""
        is_root = not trace.get_current_span(parent_context).get_span_context().is_valid
        if is_root and any(link.context.trace_flags.sampled for link in links or ()):
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes, trace_state)
        return self._sampler.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        """What it is."""
        return f"LinkAwareSampler{{{self._sampler.get_description()}}}"
