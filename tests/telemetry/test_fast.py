"""Histograms that rxjobs sums up itself are told as the SDK's own would be."""

from __future__ import annotations

import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    MetricExporter,
    MetricExportResult,
    PeriodicExportingMetricReader,
)
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from rxjobs.events import JobFailed, JobStarted, JobStopped
from rxjobs.failure import Failure
from rxjobs.outcome import COMPLETE, Retry
from rxjobs.telemetry import names
from rxjobs.telemetry.fast import Added, FastExporter
from rxjobs.telemetry.histograms import Histograms
from rxjobs.telemetry.metrics import Metrics
from rxjobs.telemetry.providers import Telemetry
from rxjobs.testing.jobs import a_job

VALUES = [0, 1, 4_999_999, 5_000_000, 5_000_001, 80_000_000, 2 * 10**9, 10**12, 10**14]
"""Durations on both sides of bounds, and on them, ns."""


class Kept(MetricExporter):
    """Keeps what it is given."""

    def __init__(self, temporality=None):
        super().__init__(preferred_temporality=temporality)
        self.data = []

    def export(self, metrics_data, timeout_millis=10_000, **kwargs):
        self.data.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis=10_000):
        return True

    def shutdown(self, timeout_millis=30_000, **kwargs):
        pass


def durations(data):
    """What was told of durations: bounds, buckets, count, sum, least and most, by attributes."""
    return {
        (metric.name, frozenset(point.attributes.items())): (
            tuple(point.explicit_bounds), tuple(point.bucket_counts), point.count, pytest.approx(point.sum), point.min, point.max,
        )
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name in (names.PROCESS_DURATION.name, names.QUEUE_DURATION.name)
        for point in metric.data.data_points
    }  # fmt: skip


def measure(metrics):
    for value in VALUES:
        job = a_job(type="work", queue="mail")
        metrics.hear(JobStarted(job=job, queue_time=value))
        metrics.hear(JobStopped(job=job, duration=value, queue_time=0, outcome=COMPLETE))
        metrics.hear(JobFailed(job=job, duration=value, queue_time=0, outcome=Retry(1), error=Failure("E", "")))


@pytest.fixture
def fast():
    """Sums of a test's own, an exporter that is given them, and metrics that make them."""
    histograms, kept = Histograms(), Kept()
    reader = PeriodicExportingMetricReader(FastExporter(kept, histograms), export_interval_millis=float("inf"))
    provider = MeterProvider([reader], shutdown_on_exit=False)
    metrics = Metrics({"work"}, Telemetry(meter_provider=provider, metrics={"fast": histograms}))
    yield metrics, provider, kept
    provider.shutdown()


def test_they_are_what_the_sdk_would_have_told(fast):
    metrics, provider, kept = fast
    reader = InMemoryMetricReader()
    plain = Metrics({"work"}, Telemetry(meter_provider=MeterProvider([reader], shutdown_on_exit=False)))
    measure(metrics)
    measure(plain)
    provider.force_flush()
    told = durations(kept.data[-1])
    assert len(told) == 3
    assert told == durations(reader.get_metrics_data())


def test_all_other_metrics_are_told_with_them(fast):
    metrics, provider, kept = fast
    measure(metrics)
    provider.force_flush()
    scopes = [scope for resource in kept.data[-1].resource_metrics for scope in resource.scope_metrics]
    assert [scope.scope.name for scope in scopes] == ["rxjobs"]
    told = [metric.name for metric in scopes[0].metrics]
    assert len(told) == len(set(told))
    assert {names.ATTEMPTS.name, names.PROCESS_DURATION.name} <= set(told)


def test_where_deltas_are_asked_for_each_value_is_told_once():
    histograms, kept = Histograms(), Kept({Histogram: AggregationTemporality.DELTA})
    reader = PeriodicExportingMetricReader(FastExporter(kept, histograms), export_interval_millis=float("inf"))
    provider = MeterProvider([reader], shutdown_on_exit=False)
    metrics = Metrics({"work"}, Telemetry(meter_provider=provider, metrics={"fast": histograms}))
    for _ in range(2):
        measure(metrics)
        provider.force_flush()
    provider.force_flush()
    provider.shutdown()
    first, second = [durations(data) for data in kept.data[:2]]
    assert {one[2] for one in first.values()} == {one[2] for one in second.values()} == {len(VALUES)}
    assert durations(kept.data[-1]) == {}


def test_a_value_of_a_recorded_trace_is_an_exemplar_and_one_of_another_is_none():
    histograms = Histograms()
    sums = histograms.of(names.PROCESS_DURATION, {"a": "b"})
    for span_id, flags in ((1, TraceFlags.SAMPLED), (2, TraceFlags.DEFAULT)):
        span = NonRecordingSpan(SpanContext(7, span_id, False, TraceFlags(flags)))
        sums.record(0.02, context=trace.set_span_in_context(span, Context()))
    assert [(one.trace_id, one.span_id, one.value) for one in sums.exemplars.values()] == [(7, 1, 0.02)]


def test_they_are_read_while_others_are_recorded():
    histograms = Histograms()
    sums = histograms.of(names.PROCESS_DURATION, {"a": "b"})
    added = Added(histograms)

    def record():
        for _ in range(20_000):
            sums.record(0.02)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(record)
        while not done.done():
            point = added._point(sums, 0)
            assert point is None or point.count == sum(point.bucket_counts)
    assert sum(sums.buckets) == 20_000


def test_prometheus_fetches_them_with_exemplars_and_the_names_that_the_dashboards_have():
    pytest.importorskip("prometheus_client", reason="the extra `prometheus` is not installed")
    from observability.naming import all_series
    from rxjobs.telemetry.prometheus import PrometheusReader

    histograms = Histograms()
    reader = PrometheusReader(histograms)
    provider = MeterProvider([reader], shutdown_on_exit=False)
    metrics = Metrics({"work"}, Telemetry(meter_provider=provider, metrics={"fast": histograms}))
    measure(metrics)
    span = NonRecordingSpan(SpanContext(7, 1, False, TraceFlags(TraceFlags.SAMPLED)))
    of = {names.MESSAGING_SYSTEM: "rxjobs", names.OPERATION_NAME: "process", names.DESTINATION: "mail", names.KIND: "work"}
    histograms.of(names.PROCESS_DURATION, of).record(0.02, context=trace.set_span_in_context(span, Context()))
    port = reader.serve([0], "127.0.0.1")
    accept = {"Accept": "application/openmetrics-text"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=accept)
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - a server of ours
        page = answer.read().decode()
    provider.shutdown()
    samples = [line.split("{")[0].split(" ")[0] for line in page.splitlines() if line and not line.startswith("#")]
    assert set(samples) - all_series().keys() == {"target_info"}
    assert "rxjobs_job_attempts_total{" in page
    assert f'trace_id="{7:032x}"' in page
    (line,) = [
        line for line in page.splitlines() if line.startswith("messaging_process_duration_seconds_count") and "error" not in line
    ]
    assert line.split(" ")[1] == str(float(len(VALUES) + 1))
    assert line.split("{")[1].startswith(('instance="', "messaging"))


def test_what_is_no_number_spoils_no_sum():
    """As OpenTelemetry#5336: one NaN, and the sum was one for good."""
    sums = Histograms().of(names.PROCESS_DURATION, {})
    for value in (1.0, float("nan"), 2.0):
        sums.record(value)
    assert (sums.sum, sum(sums.buckets), sums.least, sums.most) == (3.0, 2, 1.0, 2.0)
