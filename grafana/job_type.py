"""One job type in depth: its rate, errors and duration, and its traces."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from grafana.panels import (
    JAEGER,
    KIND,
    PROMETHEUS,
    RATE,
    Panels,
    Raw,
    board,
    graph,
    heat,
    kinds,
    number,
    per_second,
    quantile,
    query,
    queues,
    rows,
)

DURATION = "messaging_process_duration_seconds"


def job_type() -> Dashboard:
    """The dashboard."""
    made = board("rxjobs-job-type", "rxjobs / Job type", "How one job type does, and its traces.", "prometheus", "jaeger")
    made.with_variable(queues()).with_variable(kinds(multi=False))
    for title, panels in (("$kind", numbers()), ("Rate, errors, duration", red()), ("Traces", traces())):
        made.with_row(Row(title))
        for panel in panels:
            made.with_panel(panel)
    return made


def numbers() -> Panels:
    """Six numbers."""
    failed = f'sum(rate({DURATION}_count{{error_type!="", {KIND}}}[{RATE}]))'
    return [
        number("Attempts", "Each second.", query(f"sum(rate(rxjobs_job_attempts_total{{{KIND}}}[{RATE}]))"), unit="ops"),
        number(
            "Errors",
            "Of its attempts, those that failed.",
            query(f"({failed} or vector(0)) / sum(rate({DURATION}_count{{{KIND}}}[{RATE}]))"),
            unit="percentunit",
            limits={0.01: "orange", 0.05: "red"},
        ),
        number(
            "Duration",
            "95th percentile.",
            query(f"histogram_quantile(0.95, sum by (le) (rate({DURATION}_bucket{{{KIND}}}[{RATE}])))"),
            unit="s",
        ),
        number("Running", "Now.", query(f"sum(rxjobs_job_active{{{KIND}}})")),
        number(
            "Retried",
            "Of its attempts, those that are tried again.",
            query(
                f'(sum(rate(rxjobs_job_attempts_total{{rxjobs_job_outcome="retry", {KIND}}}[{RATE}])) or vector(0))'
                f" / sum(rate(rxjobs_job_attempts_total{{{KIND}}}[{RATE}]))"
            ),
            unit="percentunit",
        ),
        number(
            "Dead letters",
            "New ones in this time range.",
            query(f'sum(increase(rxjobs_job_attempts_total{{rxjobs_job_outcome="discard", {KIND}}}[$__range])) or vector(0)'),
            limits={1: "red"},
        ),
    ]


def red() -> Panels:
    """Its rate, errors and duration over time."""
    return [
        graph(
            "Attempts by outcome",
            "Each second. Retries, snoozes and rejections come again.",
            query(per_second("rxjobs_job_attempts_total", "rxjobs_job_outcome", KIND), "{{rxjobs_job_outcome}}"),
            unit="ops",
            span=12,
            stacked=True,
        ),
        graph(
            "Errors by type",
            "Each second.",
            query(f'sum by (error_type) (rate({DURATION}_count{{error_type!="", {KIND}}}[{RATE}]))', "{{error_type}}"),
            unit="ops",
            span=12,
            stacked=True,
        ),
        graph(
            "Duration",
            "Dots are single attempts and lead to their traces.",
            *(query(quantile(q, DURATION, "rxjobs_job_kind", KIND), f"p{q * 100:.0f}", exemplars=True) for q in (0.5, 0.95, 0.99)),
            unit="s",
            span=12,
        ),
        heat("Durations", "How many attempts took how long.", f"sum by (le) (rate({DURATION}_bucket{{{KIND}}}[{RATE}]))"),
        graph(
            "Enqueued",
            "Each second, by what came of it.",
            query(per_second("rxjobs_job_enqueues_total", "rxjobs_enqueue_result", KIND), "{{rxjobs_enqueue_result}}"),
            unit="ops",
            span=12,
            stacked=True,
        ),
        graph(
            "Running by node",
            "Who runs it.",
            query(f"sum by (instance) (rxjobs_job_active{{{KIND}}})", "{{instance}}"),
            span=12,
            stacked=True,
        ),
    ]


def traces() -> Panels:
    """Its latest traces, and which errors it has."""
    search = Raw(
        refId="A",
        datasource=JAEGER,
        queryType="search",
        service="rxjobs",
        tags='rxjobs.job.kind="$kind"',
        limit=20,
    )
    found = rows("Latest traces", "Each with the enqueue and all attempts.", search, JAEGER, span=14)
    errors = rows(
        "Errors",
        "In this time range.",
        query(
            f'topk(20, sum by (error_type) (increase({DURATION}_count{{error_type!="", {KIND}}}[$__range])))',
            instant=True,
        ),
        PROMETHEUS,
        span=10,
    )
    return [found, errors]  # the data source makes links of trace ids by itself
