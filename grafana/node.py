"""One process, or several beside each other: its places, its event loop, its connections."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from grafana.panels import INSTANCE, RATE, Panels, board, choice, graph, number, per_second, quantile, query, states

YES_OR_NO = {0: ("no", "text"), 1: ("yes", "green")}


def node() -> Dashboard:
    """The dashboard."""
    made = board("rxjobs-node", "rxjobs / Node", "What each process does, and what it lacks.", "prometheus")
    made.with_variable(choice("instance", "Node", "rxjobs_leader_status, instance"))
    for title, panels in (("Roles", roles()), ("Work", work()), ("Database", database())):
        made.with_row(Row(title))
        for panel in panels:
            made.with_panel(panel)
    return made


def roles() -> Panels:
    """Who leads, who listens, what is paused."""
    return [
        number("Nodes", "Of those chosen.", query(f"count(rxjobs_leader_status{{{INSTANCE}}})")),
        states(
            "Leads",
            "One of all nodes.",
            query(f"max by (instance) (rxjobs_leader_status{{{INSTANCE}}})", "{{instance}}"),
            YES_OR_NO,
            span=10,
        ),
        states(
            "Listens for notifications",
            "Who does not waits for the next poll.",
            query(f"max by (instance) (rxjobs_notify_connected{{{INSTANCE}}})", "{{instance}}"),
            YES_OR_NO,
            span=10,
        ),
    ]


def work() -> Panels:
    """What it runs."""
    queue = "messaging_destination_name"
    return [
        graph(
            "Attempts",
            "That ended, each second.",
            query(per_second("rxjobs_job_attempts_total", "instance", INSTANCE), "{{instance}}"),
            unit="ops",
        ),
        graph(
            "Places in use",
            "Jobs that run, of those that may at once.",
            query(
                f"sum by (instance, {queue}) (rxjobs_job_active{{{INSTANCE}}})"
                f" / sum by (instance, {queue}) (rxjobs_queue_limit{{{INSTANCE}}})",
                "{{instance}} {{messaging_destination_name}}",
            ),
            unit="percentunit",
        ),
        graph(
            "Paused queues",
            "On this node.",
            query(f"sum by (instance) (rxjobs_queue_paused{{{INSTANCE}}})", "{{instance}}"),
        ),
        graph(
            "Event loop",
            "How late timers are: of a hundred one is later. Heartbeats are timers too.",
            query(quantile(0.99, "rxjobs_eventloop_delay_seconds", "instance", INSTANCE), "{{instance}}"),
            unit="s",
        ),
        graph(
            "Executors in use",
            "Places that are taken.",
            query(
                f"sum by (instance, rxjobs_executor_type) (rxjobs_executor_usage{{{INSTANCE}}})"
                f" / sum by (instance, rxjobs_executor_type) (rxjobs_executor_limit{{{INSTANCE}}})",
                "{{instance}} {{rxjobs_executor_type}}",
            ),
            unit="percentunit",
        ),
        graph(
            "Waiting for an executor",
            "Jobs that were fetched and have no place to run in.",
            query(
                f"sum by (instance, rxjobs_executor_type) (rxjobs_executor_queue_length{{{INSTANCE}}})",
                "{{instance}} {{rxjobs_executor_type}}",
            ),
        ),
        graph(
            "Stalls and stale acks",
            "Fetched nothing though jobs were ready; outcomes that came too late.",
            query(f"sum by (instance) (increase(rxjobs_queue_stalled_total{{{INSTANCE}}}[{RATE}]))", "{{instance}} stalled"),
            query(f"sum by (instance) (increase(rxjobs_ack_stale_total{{{INSTANCE}}}[{RATE}]))", "{{instance}} stale"),
        ),
        graph(
            "Outcomes not written yet",
            "They gather while the database is away.",
            query(f"sum by (instance) (rxjobs_ack_pending{{{INSTANCE}}})", "{{instance}}"),
        ),
        graph(
            "Failures of telemetry",
            "What raised while it was told of an event.",
            query(f"sum by (instance) (increase(rxjobs_telemetry_handler_failures_total{{{INSTANCE}}}[{RATE}]))", "{{instance}}"),
        ),
    ]


def database() -> Panels:
    """Its connections, and how the database answers."""
    return [
        graph(
            "Connections",
            "By what they do.",
            query(
                f"sum by (instance, db_client_connection_state) (db_client_connection_count{{{INSTANCE}}})",
                "{{instance}} {{db_client_connection_state}}",
            ),
            query(f"sum by (instance) (db_client_connection_max{{{INSTANCE}}})", "{{instance}} limit"),
        ),
        graph(
            "Waits for a connection",
            "Who waits now, and who gave up.",
            query(f"sum by (instance) (db_client_connection_pending_requests{{{INSTANCE}}})", "{{instance}} waiting"),
            query(
                f"sum by (instance) (increase(db_client_connection_timeouts_total{{{INSTANCE}}}[{RATE}]))", "{{instance}} gave up"
            ),
        ),
        graph(
            "Wait and use of a connection, 95th percentile",
            "From asking to having, and from having to giving back.",
            query(quantile(0.95, "db_client_connection_wait_time_seconds", "instance", INSTANCE), "{{instance}} wait"),
            query(quantile(0.95, "db_client_connection_use_time_seconds", "instance", INSTANCE), "{{instance}} use"),
            unit="s",
        ),
        graph(
            "Operations, 95th percentile",
            "One enqueue, fetch or ack.",
            query(
                quantile(0.95, "messaging_client_operation_duration_seconds", "instance, messaging_operation_name", INSTANCE),
                "{{instance}} {{messaging_operation_name}}",
            ),
            unit="s",
            span=12,
        ),
        graph(
            "Notifications",
            "That arrived each second, and how often listening had to begin again.",
            query(per_second("rxjobs_notify_messages_total", "instance", INSTANCE), "{{instance}}"),
            query(
                f"sum by (instance) (increase(rxjobs_notify_reconnects_total{{{INSTANCE}}}[{RATE}]))", "{{instance}} began again"
            ),
            span=12,
        ),
        graph(
            "Room for notifications",
            "The part that is taken, as the leader sees it. From one half on nobody is notified, and jobs wait for the poll.",
            query("max(rxjobs_notify_queue_usage)", "taken"),
            unit="percentunit",
            span=12,
        ),
        graph(
            "Vacuum held up",
            "For how long somebody has kept dead rows from being removed. Claims get slow; the log of the leader names who it is.",
            query("max(rxjobs_database_horizon_age_seconds)", "oldest"),
            unit="s",
            span=12,
        ),
    ]
