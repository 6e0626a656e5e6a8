"""Metrics for Prometheus to fetch, with exemplars: the SDK's own exporter drops these. It needs the extra `prometheus`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from typing import Any

from opentelemetry.sdk.metrics.export import (
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricReader,
    MetricsData,
    NumberDataPoint,
    Sum,
)
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Exemplar as PrometheusExemplar
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from rxjobs.errors import InvalidOption
from rxjobs.log_lines import logger
from rxjobs.telemetry.fast import Added
from rxjobs.telemetry.histograms import HISTOGRAMS, Histograms
from rxjobs.telemetry.names import SERVICE_INSTANCE, SERVICE_NAME

log = logger("rxjobs.telemetry")

JOB, INSTANCE = "job", "instance"


class PrometheusReader(MetricReader):
    """Collects when it is asked to, and gives what was collected as Prometheus has it."""

    def __init__(self, histograms: Histograms = HISTOGRAMS) -> None:
        super().__init__()
        self._added = Added(histograms)
        self._lock = Lock()
        self._collected: MetricsData | None = None
        self._servers: list[Any] = []

    def serve(self, ports: Iterable[int], host: str) -> int:
        """Answer on the first of the ports that is free; gives it. Raises InvalidOption where none is."""
        registry = CollectorRegistry()
        registry.register(_Collecting(self))
        tried = list(ports)
        for port in tried:
            try:
                server, thread = start_http_server(port, host, registry)
            except OSError as error:
                log.debug("port %d is not to be had: %s", port, error)
                continue
            self._servers.append((server, thread))
            return int(server.server_port)
        span = str(tried[0]) if len(tried) == 1 else f"{tried[0]} to {tried[-1]}"
        raise InvalidOption(f"--metrics-port: nothing can be served at {host}, port {span}: taken, or not allowed; choose another")

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Answer no more."""
        servers, self._servers = self._servers, []
        for server, thread in servers:
            server.shutdown()
            server.server_close()
            thread.join(timeout=1)

    def families(self) -> list[Family]:
        """What there is now, as Prometheus has it."""
        with self._lock:
            self._collected = None
            self.collect()
            data: MetricsData | None = self._collected
        return [] if data is None else list(families(self._added.to(data)))

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        self._collected = metrics_data


class _Collecting(Collector):
    """What prometheus_client asks."""

    def __init__(self, reader: PrometheusReader) -> None:
        self._reader = reader

    def describe(self) -> Iterable[Family]:
        """Nothing is known before it is collected."""
        return ()

    def collect(self) -> Iterable[Family]:
        """What there is now."""
        return self._reader.families()


def families(data: MetricsData) -> Iterator[Family]:
    """Metrics as Prometheus names them; of several scopes that have one name, the first one's."""
    told: set[str] = set()
    for resource in data.resource_metrics:
        of = {str(key): str(value) for key, value in resource.resource.attributes.items()}
        target = Family("target", "What is measured.", "info")
        who = {JOB: of.get(SERVICE_NAME, ""), INSTANCE: of.get(SERVICE_INSTANCE, "")}
        target.add_sample("target_info", {**_labels(of), **who}, 1)
        yield target
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                family = _family(metric, who)
                if family is not None and family.name not in told:
                    told.add(family.name)
                    yield family


def _family(metric: Metric, who: Mapping[str, str]) -> Family | None:
    name = metric.name.replace(".", "_").replace("-", "_") + ("_seconds" if metric.unit == "s" else "")
    description = metric.description or metric.name
    match metric.data:
        case Histogram():
            family = Family(name, description, "histogram")
            for point in metric.data.data_points:
                _add_buckets(family, point, {**_labels(point.attributes), **who})
        case Sum(is_monotonic=True):
            family = Family(name, description, "counter")
            _add(family, f"{name}_total", metric.data.data_points, who)
        case Sum() | Gauge():
            family = Family(name, description, "gauge")
            _add(family, name, metric.data.data_points, who)
        case _:  # exponential histograms, which its text format has not
            return None
    return family


def _add(family: Family, name: str, points: Iterable[NumberDataPoint], who: Mapping[str, str]) -> None:
    for point in points:
        family.add_sample(name, {**_labels(point.attributes), **who}, point.value)


def _add_buckets(family: Family, point: HistogramDataPoint, labels: dict[str, str]) -> None:
    bounds = [*point.explicit_bounds, float("inf")]
    below, count = float("-inf"), 0
    for bound, more in zip(bounds, point.bucket_counts, strict=True):
        count += more
        exemplar = _exemplar(point, lambda value, least=below, most=bound: least < value <= most)  # type: ignore[misc]
        family.add_sample(f"{family.name}_bucket", {**labels, "le": _bound(bound)}, count, exemplar=exemplar)
        below = bound
    family.add_sample(f"{family.name}_count", labels, point.count)
    family.add_sample(f"{family.name}_sum", labels, point.sum)


def _exemplar(point: HistogramDataPoint, is_in: Callable[[float], bool]) -> PrometheusExemplar | None:
    for one in point.exemplars:
        if one.trace_id and one.span_id and is_in(one.value):
            ids = {"trace_id": f"{one.trace_id:032x}", "span_id": f"{one.span_id:016x}"}
            return PrometheusExemplar(ids, one.value, one.time_unix_nano / 1e9)
    return None


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(float(bound))


def _labels(attributes: Mapping[str, Any] | None) -> dict[str, str]:
    return {"".join(c if c.isalnum() else "_" for c in key): str(value) for key, value in (attributes or {}).items()}
