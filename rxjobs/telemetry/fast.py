"""Export the histograms that rxjobs sums up itself, with all that OpenTelemetry's SDK collects: for `metrics={"fast": True}`.

MeterProvider([PeriodicExportingMetricReader(FastExporter(OTLPMetricExporter()))])
"""

from __future__ import annotations

import time
from typing import Any

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics import Histogram as HistogramKind
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from rxjobs.telemetry import names
from rxjobs.telemetry.histograms import HISTOGRAMS, Histograms, Sums


class FastExporter(MetricExporter):
    """Hands on to another exporter what is collected, and with it the histograms of rxjobs."""

    def __init__(self, exporter: MetricExporter, histograms: Histograms = HISTOGRAMS) -> None:
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)
        self._exporter = exporter
        temporality = (exporter._preferred_temporality or {}).get(HistogramKind)
        self._added = Added(histograms, is_delta=temporality == AggregationTemporality.DELTA)

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Export."""
        return self._exporter.export(self._added.to(metrics_data), timeout_millis=timeout_millis, **kwargs)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Have the other exporter send what it holds."""
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """End the other exporter."""
        self._exporter.shutdown(timeout_millis=timeout_millis, **kwargs)


class Added:
    """Histograms as the SDK's own: since the beginning, or since they were asked for last."""

    def __init__(self, histograms: Histograms = HISTOGRAMS, *, is_delta: bool = False) -> None:
        self._histograms = histograms
        self._is_delta = is_delta
        self._told: dict[Sums, tuple[list[int], float]] = {}
        self._since = histograms.began

    def to(self, data: MetricsData) -> MetricsData:
        """What was collected, and the histograms with it."""
        now = time.time_ns()
        added = [
            Metric(metric.name, metric.description, metric.unit, Histogram(points, self._temporality))
            for metric, sums in self._histograms.all().items()
            if (points := [point for one in sums if (point := self._point(one, now)) is not None])
        ]
        if self._is_delta:
            self._since = now
        if not added or not data.resource_metrics:
            return data
        first, *others = data.resource_metrics
        return MetricsData([ResourceMetrics(first.resource, _with(first.scope_metrics, added), first.schema_url), *others])

    @property
    def _temporality(self) -> AggregationTemporality:
        return AggregationTemporality.DELTA if self._is_delta else AggregationTemporality.CUMULATIVE

    def _point(self, sums: Sums, now: int) -> HistogramDataPoint | None:
        buckets, total = list(sums.buckets), sums.sum
        if self._is_delta:
            before, sum_before = self._told.get(sums, ([0] * len(buckets), 0.0))
            self._told[sums] = buckets, total
            buckets, total = [now - then for now, then in zip(buckets, before, strict=True)], total - sum_before
        if not any(buckets):
            return None
        exemplars = [Exemplar({}, one.value, one.at, one.span_id, one.trace_id) for one in list(sums.exemplars.values())]
        return HistogramDataPoint(
            sums.attributes, self._since, now, sum(buckets), total, buckets, sums.bounds, sums.least, sums.most, exemplars
        )


def _with(scopes: Any, added: list[Metric]) -> list[ScopeMetrics]:
    """The scopes, of which ours has these metrics too."""
    ours = next((one for one in scopes if one.scope.name == names.SCOPE), None)
    if ours is None:
        scope = InstrumentationScope(names.SCOPE, names.VERSION, names.SCHEMA_URL)
        return [*scopes, ScopeMetrics(scope, added, names.SCHEMA_URL)]
    mine = ScopeMetrics(ours.scope, [*ours.metrics, *added], ours.schema_url)
    return [mine if one is ours else one for one in scopes]
