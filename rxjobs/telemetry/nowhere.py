"""OpenTelemetry's SDK at work as in production, but that nothing is sent: what telemetry costs the process that makes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from rxjobs.telemetry.fast import FastExporter
from rxjobs.telemetry.histograms import Histograms
from rxjobs.telemetry.providers import Telemetry

COLLECT_SECONDS = 1.0
"""How often metrics are collected: ten times as often as one does, so that it happens in a short run too."""


def to_nowhere(*, sampled: float | None) -> Telemetry:
    """Metrics, and spans of such a part of all traces (None: no spans at all), each in batches to an exporter that drops them."""
    histograms = Histograms()  # as in `rxjobs run`
    reader = PeriodicExportingMetricReader(FastExporter(_NoMetrics(), histograms), export_interval_millis=COLLECT_SECONDS * 1000)
    metrics = MeterProvider([reader], shutdown_on_exit=False)
    if sampled is None:
        return Telemetry(meter_provider=metrics, metrics={"fast": histograms})
    traces = TracerProvider(sampler=ParentBased(TraceIdRatioBased(sampled)), shutdown_on_exit=False)
    traces.add_span_processor(BatchSpanProcessor(_NoSpans()))
    return Telemetry(tracer_provider=traces, meter_provider=metrics, metrics={"fast": histograms})


class _NoMetrics(MetricExporter):
    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        pass


class _NoSpans(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS
