"""Providers of a test's own, since a process can set its global ones only once; and an app whose telemetry goes there."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rxjobs as rj
from rxjobs.telemetry.providers import Telemetry


@pytest.fixture
def spans():
    """The spans that have ended."""
    return InMemorySpanExporter()


@pytest.fixture
def tracer_provider(spans):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider


@pytest.fixture
def reader():
    """What collects the metrics."""
    return InMemoryMetricReader()


@pytest.fixture
def telemetry(tracer_provider, reader):
    return Telemetry(tracer_provider=tracer_provider, meter_provider=MeterProvider([reader], shutdown_on_exit=False))


@pytest.fixture
def app(dsn, telemetry):
    return rj.App(dsn, telemetry=telemetry, migrate=True, poll_seconds=0.1)
