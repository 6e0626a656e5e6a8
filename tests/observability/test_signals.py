"""The table of signals is what the names say."""

from __future__ import annotations

from observability import signals
from observability.generated import write_or_check
from observability.naming import all_series, metric_name
from rxjobs.telemetry import names


def test_the_table_is_up_to_date():
    assert signals.PAGE.read_text("utf-8") == signals.page(), "run: python -m observability.signals"


def test_the_table_names_everything_that_is_told():
    page = signals.page()
    for name in (
        *(metric.name for metric in names.METRICS),
        *(span.name for span in names.SPANS),
        *(event.name for event in names.LOG_EVENTS),
        "job.exception",
        "queue.stalled",
    ):
        assert f"| `{name}` |" in page


def test_names_are_translated_as_exporters_translate_them():
    assert metric_name(names.ATTEMPTS) == "rxjobs_job_attempts_total"
    assert metric_name(names.DEPTH) == "rxjobs_queue_depth"
    assert metric_name(names.OLDEST_AGE) == "rxjobs_queue_oldest_job_age_seconds"
    assert metric_name(names.CONNECTIONS) == "db_client_connection_count"
    assert all_series()["messaging_process_duration_seconds_bucket"] >= {"le", "rxjobs_job_kind", "error_type"}


def test_what_is_out_of_date_is_said_and_what_is_written_is_not(tmp_path, capsys):
    page = tmp_path / "page.md"
    assert write_or_check({page: "new"}, "it", ["--check"]) == 1
    assert "page.md is out of date; run: python -m it" in capsys.readouterr().err
    assert write_or_check({page: "new"}, "it", []) == 0
    assert write_or_check({page: "new"}, "it", ["--check"]) == 0
