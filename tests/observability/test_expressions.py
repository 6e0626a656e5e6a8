"""Every query of the dashboards and every rule gets an answer from a real Prometheus, which scrapes all that names.py has.

That shows that what is joined has labels in common. That rxjobs itself tells it all is another matter, and another test.
"""

from __future__ import annotations

import time

import pytest

from tests.observability import prometheus
from tests.observability.everything import told
from tests.observability.places import ALERTS, DASHBOARDS, DATA_SOURCES, RECORDED, dashboard, found, read

pytestmark = pytest.mark.skipif(prometheus.is_missing(), reason=prometheus.MISSING)

SECONDS = 60.0


def filled_in(expression: str) -> str:
    """An expression as Grafana sends it, where everything is chosen."""
    for variable, value in (
        ("$$__tags", 'messaging_destination_name="mail"'),
        ("[5m]", "[10s]"),
        ("[1m]", "[10s]"),
        ("$__rate_interval", "10s"),
        ("$__range", "10s"),
        ("$queue", ".*"),
        ("$kind", ".*"),
        ("$instance", ".*"),
    ):
        expression = expression.replace(variable, value)
    return expression


def queries() -> dict[str, str]:
    """What panels, annotations and data sources ask for."""
    asked = {
        f"{path.stem}: {panel['title']} {target['refId']}": target["expr"]
        for path in DASHBOARDS
        for panel in dashboard(path)["panels"]
        for target in panel.get("targets", ())
        if "expr" in target
    }
    asked |= {
        f"{path.stem}: {one['name']}": one["expr"]
        for path in DASHBOARDS
        for one in dashboard(path)["annotations"].get("list", ())
        if "expr" in one
    }
    asked |= {f"Jaeger {number}": one for number, one in enumerate(found(read(DATA_SOURCES), "query"))}
    asked |= {rule["record"]: rule["record"] for rule in RECORDED}
    return asked


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with told() as target, prometheus.running(tmp_path_factory.mktemp("prometheus"), target) as server:
        yield server


def test_every_query_gets_an_answer(server):
    unanswered = queries()
    assert len(unanswered) > 80
    deadline = time.monotonic() + SECONDS
    while unanswered and time.monotonic() < deadline:
        unanswered = {name: asked for name, asked in unanswered.items() if not server.ask(filled_in(asked))}
        time.sleep(0.2)
    assert unanswered == {}


def test_an_answer_is_a_number(server):
    """A quotient of nothing by nothing is an answer too, and shows nothing."""
    answers = {name: server.ask(filled_in(asked)) for name, asked in queries().items()}
    assert [name for name, series in answers.items() if series and all(one["value"][1] == "NaN" for one in series)] == []


def test_prometheus_evaluates_every_rule(server):
    deadline = time.monotonic() + SECONDS
    health = {}
    while set(health.values()) != {"ok"} and time.monotonic() < deadline:
        health = {rule["name"]: rule["health"] for group in server.get("rules")["groups"] for rule in group["rules"]}
        time.sleep(0.2)
    assert health == dict.fromkeys([*(rule["record"] for rule in RECORDED), *(alert["alert"] for alert in ALERTS)], "ok")
