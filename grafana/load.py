"""Rows of the overview about the machinery: saturation, flow and demand, resilience."""

from __future__ import annotations

from grafana.panels import KIND, QUEUE, RATE, Panels, graph, per_second, quantile, query, states

BREAKER_STATES = {0: ("closed", "green"), 1: ("half open", "orange"), 2: ("open", "red")}
BREAKERS = (
    'max by (rxjobs_breaker_name) (rxjobs_breaker_state{rxjobs_breaker_state="half_open"} * 1'
    ' or rxjobs_breaker_state{rxjobs_breaker_state="open"} * 2)'
)


def saturation() -> Panels:
    """What there is room for, and how much of it is taken."""
    queue = "messaging_destination_name"
    return [
        graph(
            "Places in use",
            "Jobs that run, of those that may at once.",
            query(
                f"sum by ({queue}) (rxjobs_job_active{{{QUEUE}}}) / sum by ({queue}) (rxjobs_queue_limit{{{QUEUE}}})",
                "{{messaging_destination_name}}",
            ),
            unit="percentunit",
        ),
        graph(
            "Running",
            "Jobs that run now.",
            query(f"sum by ({queue}) (rxjobs_job_active{{{QUEUE}}})", "{{messaging_destination_name}}"),
        ),
        graph(
            "Executors in use",
            "Places of executors that are taken.",
            query(
                "sum by (rxjobs_executor_type) (rxjobs_executor_usage) / sum by (rxjobs_executor_type) (rxjobs_executor_limit)",
                "{{rxjobs_executor_type}}",
            ),
            unit="percentunit",
        ),
        graph(
            "Waiting for an executor",
            "Jobs that were fetched and have no place to run in.",
            query("sum by (rxjobs_executor_type) (rxjobs_executor_queue_length)", "{{rxjobs_executor_type}}"),
        ),
        graph(
            "Event loop, 99th percentile",
            "How late timers are. A quarter of a second is too much.",
            query(quantile(0.99, "rxjobs_eventloop_delay_seconds", "instance"), "{{instance}}"),
            unit="s",
        ),
        graph(
            "Connections",
            "Of the pools: in use, and who waits for one.",
            query('sum(db_client_connection_count{db_client_connection_state="used"}) / sum(db_client_connection_max)', "in use"),
            query("sum(db_client_connection_pending_requests)", "waiting"),
        ),
    ]


def flow() -> Panels:
    """How jobs come to this node: what was asked for, and what came."""
    queue = "messaging_destination_name"
    return [
        graph(
            "Demand that is not met",
            "Jobs that pipelines would take at once: room that is there.",
            query(f"sum by ({queue}) (rxjobs_demand_outstanding{{{QUEUE}}})", "{{messaging_destination_name}}"),
        ),
        graph(
            "Fulfilment",
            "Of the jobs that were asked for, those that were there. Low is idle, 1 is a queue that keeps all busy.",
            query(
                f"{per_second('rxjobs_demand_fulfilled_total', queue)} / {per_second('rxjobs_demand_requested_total', queue)}",
                "{{messaging_destination_name}}",
            ),
            unit="percentunit",
        ),
        graph(
            "Polls",
            "What made sources look, and whether there was anything.",
            query(
                per_second("rxjobs_fetch_polls_total", "rxjobs_fetch_trigger, rxjobs_fetch_result"),
                "{{rxjobs_fetch_trigger}} {{rxjobs_fetch_result}}",
            ),
            unit="ops",
            stacked=True,
        ),
        graph(
            "Jobs of a fetch",
            "On average.",
            query(
                f"{per_second('rxjobs_fetch_batch_size_sum', queue)} / {per_second('rxjobs_fetch_batch_size_count', queue)}",
                "{{messaging_destination_name}}",
            ),
        ),
        graph(
            "Jobs of an ack",
            "On average: what gathered while the last was written.",
            query(
                f"{per_second('rxjobs_ack_batch_size_sum', queue)} / {per_second('rxjobs_ack_batch_size_count', queue)}",
                "{{messaging_destination_name}}",
            ),
        ),
        graph(
            "Database, 95th percentile",
            "One enqueue, fetch or ack.",
            query(
                quantile(0.95, "messaging_client_operation_duration_seconds", "messaging_operation_name", QUEUE),
                "{{messaging_operation_name}}",
            ),
            unit="s",
        ),
        graph(
            "Stages",
            "What goes into each stage, and what becomes of it.",
            query(
                "sum by (rxjobs_stage_name, rxjobs_stage_disposition) (rate(rxjobs_stage_items_total[$__rate_interval]))",
                "{{rxjobs_stage_name}} {{rxjobs_stage_disposition}}",
            ),
            unit="ops",
        ),
        graph(
            "Stages, 95th percentile",
            "A stage's own work.",
            query(quantile(0.95, "rxjobs_stage_duration_seconds", "rxjobs_stage_name"), "{{rxjobs_stage_name}}"),
            unit="s",
        ),
        graph(
            "Buffers in use",
            "Items that wait in a stage, of those that may.",
            query(
                "sum by (rxjobs_stage_name) (rxjobs_stage_buffer_usage) / sum by (rxjobs_stage_name) (rxjobs_stage_buffer_limit)",
                "{{rxjobs_stage_name}}",
            ),
            unit="percentunit",
        ),
    ]


def resilience() -> Panels:
    """What went wrong and was dealt with."""
    return [
        states(
            "Breakers",
            "Open: jobs wait and lose no attempt. Half open: probes run.",
            query(BREAKERS, "{{rxjobs_breaker_name}}"),
            BREAKER_STATES,
        ),
        graph(
            "Rejections and stale acks",
            "Jobs that a breaker did not let begin, and outcomes that came too late.",
            query(
                "sum by (rxjobs_breaker_name) (rate(rxjobs_breaker_rejections_total[$__rate_interval]))",
                "{{rxjobs_breaker_name}} rejected",
            ),
            query(per_second("rxjobs_ack_stale_total", "messaging_destination_name"), "{{messaging_destination_name}} stale"),
            unit="ops",
            span=12,
        ),
        graph(
            "Breakers that opened",
            "In this time range.",
            query(
                'sum by (rxjobs_breaker_name) (increase(rxjobs_breaker_transitions_total{rxjobs_breaker_state="open"}[$__range]))',
                "{{rxjobs_breaker_name}}",
            ),
        ),
        graph(
            "Discards",
            "Jobs that became dead letters.",
            query(
                per_second("rxjobs_job_attempts_total", "rxjobs_job_kind", f'rxjobs_job_outcome="discard", {QUEUE}, {KIND}'),
                "{{rxjobs_job_kind}}",
            ),
            unit="ops",
        ),
        graph(
            "Rescues",
            "Jobs that were taken from nodes that are gone.",
            query(
                "sum by (messaging_destination_name, rxjobs_rescue_reason)"
                f" (increase(rxjobs_job_rescues_total{{{QUEUE}}}[{RATE}]))",
                "{{messaging_destination_name}} {{rxjobs_rescue_reason}}",
            ),
        ),
        graph(
            "Promotions and prunes",
            "Jobs whose time came, and rows that were removed.",
            query(
                "sum by (rxjobs_job_state) (rate(rxjobs_job_promotions_total[$__rate_interval]))", "promoted, {{rxjobs_job_state}}"
            ),
            query("sum by (rxjobs_job_state) (rate(rxjobs_job_prunes_total[$__rate_interval]))", "removed, {{rxjobs_job_state}}"),
            unit="ops",
        ),
        graph(
            "Maintenance, 95th percentile",
            "One round of each task.",
            query(quantile(0.95, "rxjobs_maintenance_duration_seconds", "rxjobs_maintenance_task"), "{{rxjobs_maintenance_task}}"),
            unit="s",
        ),
        graph(
            "Notifications, 95th percentile",
            "From a notification to its arrival. Where none arrives, jobs wait for the next poll.",
            query(quantile(0.95, "rxjobs_notify_delay_seconds", "instance"), "{{instance}}"),
            unit="s",
        ),
    ]
