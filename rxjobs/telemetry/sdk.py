"""OpenTelemetry's SDK for a process of our own, set up from the standard OTEL_* variables. `rxjobs run` alone calls this.

A collector that is away must neither slow a job nor hold the process up when it ends.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from rxjobs.errors import InvalidOption
from rxjobs.log_lines import logger
from rxjobs.telemetry.fast import FastExporter
from rxjobs.telemetry.histograms import HISTOGRAMS
from rxjobs.telemetry.inherited import Inherited, leave
from rxjobs.telemetry.logs import JobLogFilter
from rxjobs.telemetry.names import NODE_LABEL, SERVICE_INSTANCE, SERVICE_NAME
from rxjobs.telemetry.providers import is_set
from rxjobs.telemetry.sampling import LinkAwareSampler
from rxjobs.telemetry.sparing import Sparing

log = logger("rxjobs.telemetry")

SHUTDOWN_SECONDS = 1.0
"""Of the two that a process may take to end after its grace, the half: the rest is for the last writes and the interpreter."""
GRPC_PORT = 4317
NO_TRACES = ("always_off", "parentbased_always_off")
PROTOCOLS = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
EXPORTING = (
    "opentelemetry.exporter",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
    "opentelemetry.sdk.trace.export",
)
"""Who logs that an export failed."""

Environ = Mapping[str, str]
Provider = TracerProvider | MeterProvider | LoggerProvider


def configure(
    service_name: str = "rxjobs",
    instance: str | None = None,
    environ: Environ = os.environ,
    *,
    label: str = "",
    metrics_ports: Sequence[int] = (),
    baggage_attributes: Sequence[str] = (),
    tells_metrics: bool = True,
    seconds: float = SHUTDOWN_SECONDS,
) -> Callable[[], None]:
    """Set the process's providers as OTEL_* asks; returns what ends them, within `seconds` whatever the collector does.

    Nothing is set where no exporter and no OTLP endpoint is named, nor in the place of what the process has set already.
    OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over the arguments. `label` is what people call the instance. With
    `metrics_ports` Prometheus may fetch metrics from the first of them that is free, at OTEL_EXPORTER_PROMETHEUS_HOST (localhost).
    Raises InvalidOption for an exporter that is not there.
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return _nothing
    wanted = {signal: _exporters(signal, environ) for signal in ("traces", "metrics", "logs")}
    if not tells_metrics:
        wanted["metrics"] = []
    if not any(wanted.values()) and not metrics_ports:
        return _nothing
    resource = _resource(service_name, instance, label)
    providers: list[Provider] = []
    handler: logging.Handler | None = None
    if wanted["traces"] and not is_set(trace.get_tracer_provider()):
        providers.append(_trace(wanted["traces"], resource))
    if (wanted["metrics"] or metrics_ports) and not is_set(metrics.get_meter_provider()):
        providers.append(_measure(wanted["metrics"], resource, metrics_ports, environ))
    if wanted["logs"] and not is_set(_logs.get_logger_provider()):
        provider = _log(wanted["logs"], resource)
        providers.append(provider)
        handler = _bridge(provider, baggage_attributes)
    _spare_the_log()
    leave(Inherited(service_name, instance, label, tuple(baggage_attributes)))
    return lambda: _shut_down(providers, handler, seconds)


def _exporters(signal: str, environ: Environ) -> list[str]:
    """The entry points of a signal's exporters: those named, or OTLP where an endpoint is; logs must be asked for."""
    named = environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip()
    if not named and signal != "logs" and _endpoint(signal, environ):
        named = "otlp"
    names = [name.strip() for name in named.split(",") if name.strip()]
    return [_otlp(signal, environ) if name == "otlp" else name for name in names if name.lower() != "none"]


def _endpoint(signal: str, environ: Environ) -> str:
    return environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")


def _otlp(signal: str, environ: Environ) -> str:
    protocol = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if not protocol:
        # the specification's default, but for the port that speaks the other
        protocol = "grpc" if _port(_endpoint(signal, environ)) == GRPC_PORT else "http/protobuf"
    try:
        return PROTOCOLS[protocol.strip()]
    except KeyError:
        raise InvalidOption(f"OTEL_EXPORTER_OTLP_PROTOCOL is one of {', '.join(PROTOCOLS)}, not {protocol!r}") from None


def _port(endpoint: str) -> int | None:
    try:
        return urlsplit(endpoint if "//" in endpoint else f"//{endpoint}").port
    except ValueError:
        return None


def _load(signal: str, names: list[str]) -> list[Any]:
    """New exporters, by the names under which they are installed."""
    found = []
    for name in names:
        here = list(entry_points(group=f"opentelemetry_{signal}_exporter", name=name))
        if not here:
            raise InvalidOption(f"OTEL_{signal.upper()}_EXPORTER names {name!r}, which is not installed; use otlp, console or none")
        found.append(here[0].load()())
    return found


def _resource(service_name: str, instance: str | None, label: str) -> Resource:
    given = OTELResourceDetector().detect().attributes
    ours = {SERVICE_NAME: service_name, SERVICE_INSTANCE: instance, NODE_LABEL: label or None}
    return Resource.create({name: value for name, value in ours.items() if value is not None and name not in given})


# atexit would wait half a minute for a collector that does not answer: none of the providers is to shut down by itself


def _trace(exporters: list[str], resource: Resource) -> TracerProvider:
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    # who wants none wants none; all others want the attempts that link to what is recorded
    if os.environ.get("OTEL_TRACES_SAMPLER", "").strip() not in NO_TRACES:
        provider.sampler = LinkAwareSampler(provider.sampler)
    for exporter in _load("traces", exporters):
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider


def _measure(exporters: list[str], resource: Resource, ports: Sequence[int], environ: Environ) -> MeterProvider:
    """The provider. rxjobs sums durations up itself, where all that export can be given those sums."""
    found = _load("metrics", exporters)
    is_fast = not any(isinstance(one, MetricReader) for one in found)
    readers: list[MetricReader] = []
    for one in found:
        if isinstance(one, MetricReader):
            readers.append(one)
        else:
            readers.append(PeriodicExportingMetricReader(FastExporter(one) if is_fast else one))
    if ports:
        readers.append(_prometheus(ports, environ))
    HISTOGRAMS.is_exported = is_fast
    provider = MeterProvider(readers, resource, shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    return provider


def _prometheus(ports: Sequence[int], environ: Environ) -> MetricReader:
    try:
        from rxjobs.telemetry.prometheus import PrometheusReader
    except ImportError:
        raise InvalidOption('--metrics-port needs prometheus-client: pip install "rxjobs[prometheus]"') from None
    reader = PrometheusReader()
    host = environ.get("OTEL_EXPORTER_PROMETHEUS_HOST", "").strip() or "localhost"
    log.info("metrics can be fetched from http://%s:%d/metrics", host, reader.serve(ports, host))
    return reader


def _log(exporters: list[str], resource: Resource) -> LoggerProvider:
    provider = LoggerProvider(resource, shutdown_on_exit=False)
    for exporter in _load("logs", exporters):
        provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    _logs.set_logger_provider(provider)
    return provider


def _bridge(provider: LoggerProvider, baggage_attributes: Sequence[str]) -> logging.Handler:
    """Hand on what is logged in this process."""
    with warnings.catch_warnings():
        # deprecated in favour of a package that a process has to install and set up by itself
        warnings.simplefilter("ignore", DeprecationWarning)
        handler = LoggingHandler(logger_provider=provider)
    # what an export logs about itself would be exported in turn
    handler.addFilter(lambda record: not record.name.startswith(("opentelemetry", "urllib3")))
    handler.addFilter(JobLogFilter(baggage_attributes))
    logging.getLogger().addHandler(handler)
    return handler


def _spare_the_log() -> None:
    sparing = Sparing()
    for name in tuple(logging.root.manager.loggerDict):
        if name.startswith(EXPORTING):
            logging.getLogger(name).addFilter(sparing)


def _shut_down(providers: list[Provider], handler: logging.Handler | None, seconds: float) -> None:
    """Export what is left, all signals at once. Who does not get it done in time is left behind: the threads are daemons."""
    leave(None)
    if handler is not None:
        logging.getLogger().removeHandler(handler)
    deadline = time.monotonic() + seconds
    threads = [threading.Thread(target=_end, args=(one,), name="rxjobs-telemetry", daemon=True) for one in providers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        log.warning("the last telemetry could not be exported within %g s, and is lost", seconds)


def _end(provider: Provider) -> None:
    try:
        provider.shutdown()
    except Exception:
        log.exception("the last telemetry could not be exported")


def _nothing() -> None:
    """What ends telemetry that was not set up."""
