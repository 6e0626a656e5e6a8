"""Every metric, label and value that a dashboard, rule, alert or data source asks for is one that rxjobs tells."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from observability.naming import all_series, label
from rxjobs.telemetry import names
from tests.observability.places import ALERTS, DASHBOARDS, DATA_SOURCES, RECORDED, RULES, dashboard, found, read
from tests.observability.promql import faults, parse

VALUES = {label(attribute): values for attribute, values in names.VALUES.items()}
RECORDS = {rule["record"]: parse(rule["expr"]).grouped - {"le"} for rule in RECORDED}
for rule in RECORDED:  # one that builds on others has their labels
    for metric, _ in parse(rule["expr"]).selectors:
        RECORDS[rule["record"]] |= RECORDS.get(metric, set())
SERIES = {**all_series(), **RECORDS, "up": set()}
LABEL_VALUES = re.compile(r"label_values\((?P<expression>.*), (?P<label>\w+)\)")


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression that is committed, and where it is."""
    for path in DASHBOARDS:
        for number, one in enumerate(found(dashboard(path), "expr")):
            yield f"{path.name} {number}", one
        for variable in dashboard(path)["templating"]["list"]:
            if variable["type"] == "query":
                yield f"{path.name} ${variable['name']}", LABEL_VALUES.fullmatch(variable["query"]["query"])["expression"]
    for one in RECORDED:
        yield one["record"], one["expr"]
    for one in ALERTS:
        yield one["alert"], one["expr"]
    for one in found(read(DATA_SOURCES), "query"):
        yield "data source", one.replace("$$", "$")
    for path in RULES.glob("*_test.yml"):
        for one in found(read(path), "series"):
            yield f"{path.name} {one}", one


EXPRESSIONS = list(expressions())


@pytest.mark.parametrize("expression", [one for _, one in EXPRESSIONS], ids=[place for place, _ in EXPRESSIONS])
def test_an_expression_asks_for_what_is_told(expression):
    assert faults(expression, SERIES, VALUES) == []


def test_all_kinds_of_expressions_are_looked_at():
    places = " ".join(place for place, _ in EXPRESSIONS)
    for one in (
        "overview.json",
        "job-type.json",
        "node.json",
        "$queue",
        "data source",
        "Stalled",
        "rxjobs:queue_depth:max",
        "_test.yml",
    ):
        assert one in places
    assert len(EXPRESSIONS) > 150


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("sum(rate(rxjobs_job_attempt_total[5m]))", "no metric rxjobs_job_attempt_total"),
        ("rxjobs_job_active{queue='a'} or rxjobs_queue_depth{queue=\"a\"}", "rxjobs_queue_depth has no label queue"),
        ('rxjobs_job_attempts_total{rxjobs_job_outcome=~"success|failure"}', "rxjobs_job_outcome is never failure"),
        ("sum by (le, kind) (rate(messaging_process_duration_seconds_bucket[5m]))", "nothing here has a label kind"),
        ("sum by (le) (rate(rxjobs_job_active[5m]))", "nothing here has a label le"),
        ("vector(1)", "'vector(1)' asks for no metric"),
    ],
)
def test_what_is_not_told_is_found(expression, fault):
    assert fault in faults(expression, SERIES, VALUES)


def test_a_legend_names_what_its_query_groups_by():
    for path in DASHBOARDS:
        for target in (target for panel in dashboard(path)["panels"] for target in panel.get("targets", ())):
            used = set(re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))
            assert used <= parse(target.get("expr", "")).grouped, target


def test_what_an_alert_says_names_what_its_expression_has():
    for alert in ALERTS:
        expression = parse(alert["expr"])
        labels = expression.grouped.union(*(RECORDS.get(metric, set()) for metric, _ in expression.selectors))
        used = set(re.findall(r"\$labels\.(\w+)", " ".join(alert["annotations"].values())))
        assert used <= labels, alert["alert"]


def test_every_metric_is_looked_at_somewhere():
    """What nobody looks at need not be told; those left out are here, with their reason."""
    asked = {metric for _, expression in EXPRESSIONS for metric, _ in parse(expression).selectors}
    unseen = {metric.name for metric in names.METRICS if not any(name.startswith(label(metric.name)) for name in asked)}
    assert unseen == {
        # for the queue dashboards of tracing backends, which know the conventions; ours count jobs by type and result
        "messaging.client.sent.messages",
        "messaging.client.consumed.messages",
        # off by default
        "rxjobs.job.lifetime.duration",
    }
