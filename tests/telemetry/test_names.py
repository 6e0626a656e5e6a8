"""The names are those of the semantic conventions, where these have one."""

from __future__ import annotations

from opentelemetry.semconv._incubating.attributes import messaging_attributes as messaging
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import code_attributes, error_attributes, exception_attributes, service_attributes
from opentelemetry.semconv.schemas import Schemas

from rxjobs.telemetry import names

METRICS = [value for value in vars(names).values() if isinstance(value, names.Metric)]


def test_attributes_of_the_conventions_are_spelt_as_there():
    assert {
        names.MESSAGING_SYSTEM: messaging.MESSAGING_SYSTEM,
        names.OPERATION_NAME: messaging.MESSAGING_OPERATION_NAME,
        names.OPERATION_TYPE: messaging.MESSAGING_OPERATION_TYPE,
        names.DESTINATION: messaging.MESSAGING_DESTINATION_NAME,
        names.MESSAGE_ID: messaging.MESSAGING_MESSAGE_ID,
        names.MESSAGE_COUNT: messaging.MESSAGING_BATCH_MESSAGE_COUNT,
        names.CODE_FUNCTION: code_attributes.CODE_FUNCTION_NAME,
        names.ERROR_TYPE: error_attributes.ERROR_TYPE,
        names.OTHER: error_attributes.ErrorTypeValues.OTHER.value,
        names.EXCEPTION_TYPE: exception_attributes.EXCEPTION_TYPE,
        names.EXCEPTION_MESSAGE: exception_attributes.EXCEPTION_MESSAGE,
        names.EXCEPTION_STACKTRACE: exception_attributes.EXCEPTION_STACKTRACE,
        names.SERVICE_NAME: service_attributes.SERVICE_NAME,
        names.PROCESS: messaging.MessagingOperationTypeValues.PROCESS.value,
        names.PROCESS_DURATION.name: messaging_metrics.MESSAGING_PROCESS_DURATION,
        names.SCHEMA_URL: Schemas.V1_44_0.value,
    }.items() <= {(name, name) for name in _strings()}


def _strings():
    metrics = [metric.name for metric in METRICS]
    return metrics + [value for value in vars(names).values() if isinstance(value, str)]


def test_what_is_our_own_is_in_our_own_namespace():
    ours = [name for name in _strings() if name.startswith(("messaging.rxjobs", "rxjobs_"))]
    assert ours == []
    assert {metric.name.split(".")[0] for metric in METRICS} == {"messaging", "rxjobs"}


def test_a_metric_has_a_unit_in_seconds_or_curly_braces_and_histograms_have_rising_bounds():
    assert METRICS
    for metric in METRICS:
        assert metric.unit == "s" or (metric.unit[0], metric.unit[-1]) == ("{", "}")
        assert list(metric.bounds) == sorted(set(metric.bounds))
        assert (metric.unit == "s") == bool(metric.bounds)
        assert not metric.name.endswith(("_total", ".count"))


def test_the_duration_of_an_attempt_has_all_the_bounds_of_the_conventions():
    assert {0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10} <= {*names.PROCESS_DURATION.bounds}
