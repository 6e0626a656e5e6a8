"""Rules and alerts are right by Prometheus' own tool, and each alert says what to do."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import yaml

from tests.observability.places import ALERTS, OBSERVABILITY, ROOT, RULES, read

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed: apt-get install --no-install-recommends prometheus, or a release of Prometheus on the PATH",
)
RUNBOOK = ROOT / "docs" / "telemetry.md"


def promtool(*arguments):
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60)


@needs_promtool
def test_prometheus_is_configured_rightly():
    ran = promtool("check", "config", OBSERVABILITY / "prometheus.yml")
    assert ran.returncode == 0, ran.stderr
    assert "2 rule files found" in ran.stdout


@needs_promtool
@pytest.mark.parametrize("path", sorted(RULES.glob("*_test.yml")), ids=lambda path: path.name)
def test_rules_do_what_their_tests_say(path):
    ran = promtool("test", "rules", path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_promtool
def test_a_rule_that_does_something_else_is_found(tmp_path):
    for name in ("rxjobs.rules.yml", "rxjobs.alerts.yml"):
        shutil.copy(RULES / name, tmp_path)
    written = read(RULES / "rxjobs.alerts_test.yml")
    tests = tmp_path / "test.yml"
    tests.write_text(yaml.safe_dump({**written, "tests": written["tests"][:1]}), "utf-8")
    assert promtool("test", "rules", tests).returncode == 0
    alerts = tmp_path / "rxjobs.alerts.yml"
    alerts.write_text(alerts.read_text("utf-8").replace("age_seconds:max > 300", "age_seconds:max > 3000"), "utf-8")
    assert promtool("test", "rules", tests).returncode != 0


def test_there_are_twelve_alerts_of_different_names():
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS) == 13


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_says_what_it_is_and_what_to_do(alert):
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert {"summary", "description", "runbook_url"} == alert["annotations"].keys()
    page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    assert ROOT / page == RUNBOOK
    headings = {line.lstrip("# ").lower() for line in RUNBOOK.read_text("utf-8").splitlines() if line.startswith("#")}
    assert anchor == alert["alert"].lower()
    assert anchor in headings


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_is_tried_both_when_it_fires_and_when_it_does_not(alert):
    tried = [
        bool(check["exp_samples"])
        for test in read(RULES / "rxjobs.alerts_test.yml")["tests"]
        for check in test.get("promql_expr_test", ())
        if f'alertname="{alert["alert"]}"' in check["expr"]
    ]
    assert set(tried) == {True, False}
