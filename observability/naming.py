"""How a name of OpenTelemetry reads in Prometheus: what the collector's exporter and the SDK's do alike."""

from __future__ import annotations

from rxjobs.telemetry.names import METRICS, Metric


def label(attribute: str) -> str:
    """The label of an attribute."""
    return attribute.replace(".", "_")


def metric_name(metric: Metric) -> str:
    """The name of a metric's family: with its unit in words, and a counter's suffix."""
    name = label(metric.name) + ("_seconds" if metric.unit == "s" else "")  # a unit in braces is left out
    return f"{name}_total" if metric.kind == "counter" else name


def series(metric: Metric) -> dict[str, set[str]]:
    """The time series of a metric, each with its labels, but for those that Prometheus itself adds."""
    name, labels = metric_name(metric), {label(attribute) for attribute in metric.attributes}
    if metric.kind == "histogram":
        return {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
    return {name: labels}


def all_series() -> dict[str, set[str]]:
    """All time series that rxjobs may make, each with its labels."""
    return {name: labels for metric in METRICS for name, labels in series(metric).items()}
