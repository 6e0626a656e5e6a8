"""The collector and Jaeger are configured without loose ends."""

from __future__ import annotations

import copy

import pytest

from tests.observability.collectors import faults
from tests.observability.places import OBSERVABILITY, found, read

COLLECTOR, JAEGER = read(OBSERVABILITY / "otel-collector.yaml"), read(OBSERVABILITY / "jaeger.yaml")


@pytest.mark.parametrize("config", [COLLECTOR, JAEGER], ids=["collector", "jaeger"])
def test_what_is_declared_is_used_and_what_is_used_is_declared(config):
    assert faults(config) == []


@pytest.mark.parametrize(
    ("break_it", "fault"),
    [
        (lambda it: it["exporters"].pop("prometheus"), "exporters of metrics: prometheus is not declared"),
        (lambda it: it["processors"].update(filter={}), "processors: filter is not used"),
        (
            lambda it: it["service"]["pipelines"]["metrics"]["receivers"].remove("span_metrics"),
            "connector span_metrics is not among the receivers of any pipeline",
        ),
        (lambda it: it["service"]["pipelines"]["logs"].update(exporters=[]), "pipeline logs has no exporters"),
        (lambda it: it["service"]["extensions"].append("pprof"), "extension pprof is not declared"),
        (lambda it: it.update(recievers={}), "unknown section recievers"),
    ],
)
def test_a_loose_end_of_the_collector_is_found(break_it, fault):
    config = copy.deepcopy(COLLECTOR)
    break_it(config)
    assert fault in faults(config)


def test_a_storage_that_jaeger_lacks_is_found():
    config = copy.deepcopy(JAEGER)
    config["extensions"]["jaeger_storage"]["backends"] = {"other": {}}
    assert faults(config) == ["jaeger_storage has no backends traces"]


def test_memory_is_limited_before_anything_is_done():
    assert all(one["processors"][0] == "memory_limiter" for one in COLLECTOR["service"]["pipelines"].values())


def test_exemplars_reach_prometheus():
    assert COLLECTOR["exporters"]["prometheus"]["enable_open_metrics"] is True
    assert (
        "--enable-feature=exemplar-storage"
        in read(OBSERVABILITY.parent / "docker-compose.yml")["services"]["prometheus"]["command"]
    )


def test_a_dead_node_is_forgotten_before_two_leaders_are_reported():
    """What a node said last is told until it expires, so for a while after a leader was killed two seem to lead."""
    (alert,) = (
        one
        for group in read(OBSERVABILITY / "rules" / "rxjobs.alerts.yml")["groups"]
        for one in group["rules"]
        if one["alert"] == "SplitLeader"
    )
    assert (COLLECTOR["exporters"]["prometheus"]["metric_expiration"], alert["for"]) == ("1m", "2m")
    compose = (OBSERVABILITY.parent / "docker-compose.yml").read_text("utf-8")
    assert 'OTEL_METRIC_EXPORT_INTERVAL: "5000"' in compose


def test_jaeger_reads_durations_in_the_unit_that_they_are_counted_in():
    assert COLLECTOR["connectors"]["span_metrics"]["histogram"]["unit"] == "s"
    assert list(found(JAEGER, "latency_unit")) == ["s"]
