"""The names are those of the semantic conventions, where these have one."""

from __future__ import annotations

from opentelemetry.semconv._incubating.attributes import db_attributes
from opentelemetry.semconv._incubating.attributes import messaging_attributes as messaging
from opentelemetry.semconv._incubating.metrics import db_metrics, messaging_metrics
from opentelemetry.semconv.attributes import (
    code_attributes,
    error_attributes,
    exception_attributes,
    server_attributes,
    service_attributes,
)
from opentelemetry.semconv.schemas import Schemas

from rxjobs.job import State
from rxjobs.telemetry import names


def test_attributes_of_the_conventions_are_spelt_as_there():
    pairs = {
        names.MESSAGING_SYSTEM: messaging.MESSAGING_SYSTEM,
        names.OPERATION_NAME: messaging.MESSAGING_OPERATION_NAME,
        names.OPERATION_TYPE: messaging.MESSAGING_OPERATION_TYPE,
        names.DESTINATION: messaging.MESSAGING_DESTINATION_NAME,
        names.MESSAGE_ID: messaging.MESSAGING_MESSAGE_ID,
        names.CONVERSATION_ID: messaging.MESSAGING_MESSAGE_CONVERSATION_ID,
        names.MESSAGE_COUNT: messaging.MESSAGING_BATCH_MESSAGE_COUNT,
        names.CLIENT_ID: messaging.MESSAGING_CLIENT_ID,
        names.SERVER_ADDRESS: server_attributes.SERVER_ADDRESS,
        names.SERVER_PORT: server_attributes.SERVER_PORT,
        names.CODE_FUNCTION: code_attributes.CODE_FUNCTION_NAME,
        names.ERROR_TYPE: error_attributes.ERROR_TYPE,
        names.OTHER: error_attributes.ErrorTypeValues.OTHER.value,
        names.EXCEPTION_TYPE: exception_attributes.EXCEPTION_TYPE,
        names.EXCEPTION_MESSAGE: exception_attributes.EXCEPTION_MESSAGE,
        names.EXCEPTION_STACKTRACE: exception_attributes.EXCEPTION_STACKTRACE,
        names.SERVICE_NAME: service_attributes.SERVICE_NAME,
        names.POOL_NAME: db_attributes.DB_CLIENT_CONNECTION_POOL_NAME,
        names.CONNECTION_STATE: db_attributes.DB_CLIENT_CONNECTION_STATE,
        names.SCHEMA_URL: Schemas.V1_44_0.value,
    }
    assert [(ours, theirs) for ours, theirs in pairs.items() if ours != theirs] == []
    operations = {kind.value for kind in messaging.MessagingOperationTypeValues}
    assert set(names.VALUES[names.OPERATION_TYPE]) <= operations
    connections = {state.value for state in db_attributes.DbClientConnectionStateValues}
    assert set(names.VALUES[names.CONNECTION_STATE]) == connections


def test_metrics_that_are_not_our_own_are_those_of_the_conventions():
    theirs = {value for module in (messaging_metrics, db_metrics) for value in vars(module).values() if isinstance(value, str)}
    foreign = [metric.name for metric in names.METRICS if not metric.name.startswith("rxjobs.")]
    assert [name for name in foreign if name not in theirs] == []
    assert len(foreign) > 5


def test_a_job_is_in_one_of_the_states_that_there_are():
    assert set(names.VALUES[names.STATE]) == set(State)


def test_what_is_our_own_is_in_our_own_namespace():
    strings = [value for value in vars(names).values() if isinstance(value, str)]
    assert [name for name in strings if name.startswith(("messaging.rxjobs", "rxjobs_"))] == []
    assert {metric.name.split(".")[0] for metric in names.METRICS} == {"messaging", "rxjobs", "db"}


def test_every_metric_has_a_name_of_its_own():
    assert len({metric.name for metric in names.METRICS}) == len(names.METRICS) > 40


def test_a_metric_has_a_unit_in_seconds_or_curly_braces_and_histograms_alone_have_rising_bounds():
    for metric in names.METRICS:
        assert metric.unit == "s" or (metric.unit[0], metric.unit[-1]) == ("{", "}"), metric
        assert list(metric.bounds) == sorted(set(metric.bounds)), metric
        assert (metric.kind == "histogram") == bool(metric.bounds), metric
        assert not metric.name.endswith("_total"), metric
        assert metric.description.endswith("."), metric


def test_metrics_carry_known_attributes_and_none_without_bounds():
    attributes = {value for value in vars(names).values() if isinstance(value, str)}
    unbounded = {names.MESSAGE_ID, names.JOB_ID, names.ATTEMPT, names.PRIORITY, names.WORKER, names.EXCEPTION_MESSAGE}
    for metric in names.METRICS:
        assert attributes.issuperset(metric.attributes), metric
        assert unbounded.isdisjoint(metric.attributes), metric


def test_the_duration_of_an_attempt_has_all_the_bounds_of_the_conventions():
    assert {0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10} <= {*names.PROCESS_DURATION.bounds}
