"""All queues and job types at a glance: is it well, and if not, where."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from grafana.load import flow, resilience, saturation
from grafana.panels import (
    KIND,
    PROMETHEUS,
    QUEUE,
    RATE,
    Panels,
    annotation,
    board,
    graph,
    heat,
    kinds,
    link,
    number,
    per_second,
    quantile,
    query,
    queues,
    rows,
)

DRAIN = (
    f'max by (messaging_destination_name) (rxjobs_queue_depth{{rxjobs_job_state="available", {QUEUE}}})'
    " / clamp_min(sum by (messaging_destination_name)"
    f' (rate(rxjobs_job_attempts_total{{rxjobs_job_outcome=~"success|discard|cancel", {QUEUE}}}[{RATE}])), 0.001)'
)
LIMIT = f"max by (messaging_destination_name) (rxjobs_queue_concurrency_limit{{{QUEUE}}})"
PLACES = (
    f'(max by (messaging_destination_name) (rxjobs_queue_depth{{rxjobs_job_state="executing", {QUEUE}}}) or 0 * {LIMIT}) / {LIMIT}'
)
STARTS = (
    f"sum by (messaging_destination_name) (rate(rxjobs_demand_fulfilled_total{{{QUEUE}}}[{RATE}]))"
    f" / max by (messaging_destination_name) (rxjobs_queue_rate_limit{{{QUEUE}}})"
)
ARRIVALS = (
    f"sum by (messaging_destination_name) (rate(rxjobs_job_enqueues_total{{{QUEUE}}}[{RATE}]))"
    " - sum by (messaging_destination_name)"
    f' (rate(rxjobs_job_attempts_total{{rxjobs_job_outcome=~"success|discard|cancel", {QUEUE}}}[{RATE}]))'
)
ERROR_RATIO = (
    f'sum by (rxjobs_job_kind) (rate(messaging_process_duration_seconds_count{{error_type!="", {QUEUE}, {KIND}}}[{RATE}]))'
    f" / sum by (rxjobs_job_kind) (rate(messaging_process_duration_seconds_count{{{QUEUE}, {KIND}}}[{RATE}]))"
)
OPENED = 'sum by (rxjobs_breaker_name) (changes(rxjobs_breaker_transitions_total{rxjobs_breaker_state="open"}[1m]))'
TYPE_URL = "/d/rxjobs-job-type?${__url_time_range}&var-kind=${__data.fields.rxjobs_job_kind}"


def overview() -> Dashboard:
    """The dashboard."""
    made = board("rxjobs-overview", "rxjobs / Overview", "Is it well, and if not, where.", "prometheus")
    made.with_variable(queues()).with_variable(kinds())
    made.annotation(annotation("Leader changes", "sum(changes(rxjobs_leader_transitions_total[1m])) > 0", "blue"))
    made.annotation(annotation("Breakers that opened", f"{OPENED} > 0", "red"))
    for title, panels in (
        ("Health", health()),
        ("Job types: rate, errors, duration", job_types()),
        ("Queues", waiting()),
        ("Saturation", saturation()),
        ("Flow and demand", flow()),
        ("Resilience", resilience()),
    ):
        made.with_row(Row(title))
        for panel in panels:
            made.with_panel(panel)
    return made


def health() -> Panels:
    """Six numbers."""
    return [
        number("Nodes", "Processes that run jobs.", query("count(rxjobs_leader_status)")),
        number("Leaders", "There must be one.", query("sum(rxjobs_leader_status)"), limits={0: "red", 1: "green", 2: "red"}),
        number(
            "Success",
            "Of the attempts that ended, those that completed their job.",
            query(
                f'sum(rate(rxjobs_job_attempts_total{{rxjobs_job_outcome="success", {QUEUE}}}[{RATE}]))'
                f" / sum(rate(rxjobs_job_attempts_total{{{QUEUE}}}[{RATE}]))"
            ),
            unit="percentunit",
            limits={0: "red", 0.9: "orange", 0.99: "green"},
        ),
        number(
            "Oldest job",
            "How long the oldest ready job has waited: the best single sign of trouble.",
            query(f"max(rxjobs_queue_oldest_job_age_seconds{{{QUEUE}}})"),
            unit="s",
            limits={60: "orange", 300: "red"},
        ),
        number(
            "Dead letters",
            "Jobs that used up their attempts. They are kept as long as other finished jobs, a day by default.",
            query(f'sum(max by (messaging_destination_name) (rxjobs_queue_depth{{rxjobs_job_state="discarded", {QUEUE}}}))'),
            limits={1: "orange"},
        ),
        number(
            "Open breakers",
            "Job types that are not started at the moment.",
            query('sum(max by (rxjobs_breaker_name) (rxjobs_breaker_state{rxjobs_breaker_state="open"}))'),
            limits={1: "red"},
        ),
    ]


def job_types() -> Panels:
    """Rate, errors and duration of each job type."""
    top = rows(
        "Errors",
        "The ten that happened most in this time range. A job type leads to its own dashboard.",
        query(
            "topk(10, sum by (rxjobs_job_kind, error_type)"
            f' (increase(messaging_process_duration_seconds_count{{error_type!="", {QUEUE}, {KIND}}}[$__range])))',
            instant=True,
        ),
        PROMETHEUS,
        span=12,
    )
    both = f"{QUEUE}, {KIND}"
    duration = "messaging_process_duration_seconds"
    return [
        graph(
            "Attempts by outcome",
            "Attempts that ended, each second.",
            query(per_second("rxjobs_job_attempts_total", "rxjobs_job_outcome", both), "{{rxjobs_job_outcome}}"),
            unit="ops",
            stacked=True,
        ),
        graph(
            "Attempts by job type",
            "Attempts that ended, each second.",
            query(per_second("rxjobs_job_attempts_total", "rxjobs_job_kind", both), "{{rxjobs_job_kind}}"),
            unit="ops",
        ),
        graph(
            "Errors", "Of a job type's attempts, those that failed.", query(ERROR_RATIO, "{{rxjobs_job_kind}}"), unit="percentunit"
        ),
        graph(
            "Duration",
            "Of all job types together. Dots are single attempts and lead to their traces.",
            *(
                query(
                    f"histogram_quantile({q}, sum by (le) (rate({duration}_bucket{{{both}}}[{RATE}])))",
                    f"p{q * 100:.0f}",
                    exemplars=True,
                )
                for q in (0.5, 0.95, 0.99)
            ),
            unit="s",
        ),
        graph(
            "Duration by job type, 95th percentile",
            "Of twenty attempts one takes longer.",
            query(quantile(0.95, duration, "rxjobs_job_kind", both), "{{rxjobs_job_kind}}"),
            unit="s",
        ),
        graph(
            "Who takes the time",
            "Seconds of work in each second: 3 is three places that are always taken.",
            query(per_second(f"{duration}_sum", "rxjobs_job_kind", both), "{{rxjobs_job_kind}}"),
            unit="s",
            stacked=True,
        ),
        heat("Durations", "How many attempts took how long.", f"sum by (le) (rate({duration}_bucket{{{both}}}[{RATE}]))"),
        link(top, "rxjobs_job_kind", "Look at this job type", TYPE_URL),
    ]


def waiting() -> Panels:
    """What waits, how long, and for how long it will."""
    queue = "messaging_destination_name"
    return [
        graph(
            "Oldest job",
            "How long the oldest ready job has waited.",
            query(f"max by ({queue}) (rxjobs_queue_oldest_job_age_seconds{{{QUEUE}}})", "{{messaging_destination_name}}"),
            unit="s",
        ),
        graph(
            "Wait before an attempt, 95th percentile",
            "From when a job could run to when it did.",
            query(
                quantile(0.95, "rxjobs_job_queue_duration_seconds", queue, QUEUE), "{{messaging_destination_name}}", exemplars=True
            ),
            unit="s",
        ),
        graph(
            "Depth by state",
            "Jobs that are not finished, and dead letters, as the leader last counted them.",
            query(
                f"max by ({queue}, rxjobs_job_state) (rxjobs_queue_depth{{{QUEUE}}})",
                "{{messaging_destination_name}} {{rxjobs_job_state}}",
            ),
        ),
        graph(
            "Use of limits",
            "Of the limits that a queue as a whole has across all nodes: 100 % is as much as may be.",
            query(PLACES, "{{messaging_destination_name}}, at once"),
            query(STARTS, "{{messaging_destination_name}}, starts"),
            unit="percentunit",
            span=12,
        ),
        graph(
            "Arrivals less completions",
            "Above zero a queue gets longer.",
            query(ARRIVALS, "{{messaging_destination_name}}"),
            unit="ops",
            span=12,
            may_be_negative=True,
        ),
        graph(
            "Time to drain",
            "How long what is ready takes at the present rate.",
            query(DRAIN, "{{messaging_destination_name}}"),
            unit="s",
            span=12,
        ),
    ]
