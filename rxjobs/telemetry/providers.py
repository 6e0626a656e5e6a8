"""Whose providers are used."""

from __future__ import annotations

from typing import Any

import msgspec
from opentelemetry import metrics, trace
from opentelemetry.metrics import Meter, MeterProvider
from opentelemetry.trace import Tracer, TracerProvider

from rxjobs.telemetry.names import SCHEMA_URL, SCOPE, VERSION


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """Where an app's spans and metrics go: by default to the process's own providers, even when these are set later."""

    tracer_provider: TracerProvider | None = None
    meter_provider: MeterProvider | None = None

    @property
    def tracer(self) -> Tracer:
        """The tracer of rxjobs."""
        return trace.get_tracer(SCOPE, VERSION, self.tracer_provider, SCHEMA_URL)


def meter_of(provider: MeterProvider | None) -> Meter:
    """The meter of rxjobs."""
    return metrics.get_meter(SCOPE, VERSION, provider, SCHEMA_URL)


def is_set(provider: Any) -> bool:
    """Whether somebody set this provider of the process: until then OpenTelemetry gives a proxy."""
    return "Proxy" not in type(provider).__name__
