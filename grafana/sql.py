"""What the database itself says, for when there are no metrics or one job is looked for."""

from __future__ import annotations

from grafana_foundation_sdk.builders.common import ReduceDataOptions
from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from grafana.panels import POSTGRES, Panels, board, explore_trace, link, number, rows, schema, sql

DEPTHS = """
SELECT queue, state, count(*) AS jobs, min(inserted_at) AS "first enqueued"
FROM $schema.live_jobs
GROUP BY queue, state
ORDER BY queue, state
"""
READY = "SELECT count(*) AS ready FROM $schema.live_jobs WHERE state = 'available'"
OLDEST = """
SELECT COALESCE(extract(epoch FROM max(now() - scheduled_at)), 0) AS age
FROM $schema.live_jobs
WHERE state = 'available'
"""
RUNNING = "SELECT count(*) AS running FROM $schema.live_jobs WHERE state = 'executing'"
DEAD = "SELECT count(*) AS dead FROM $schema.finished_jobs WHERE state = 'discarded'"
NODES = "SELECT count(*) AS nodes FROM $schema.nodes WHERE expires_at > now()"
LEADER = """
SELECT COALESCE(max(COALESCE(NULLIF(nodes.label, ''), nodes.id::text)), 'nobody') AS leader
FROM $schema.leaders
JOIN $schema.nodes ON nodes.id = leaders.node
WHERE leaders.expires_at > now()
"""
OLDEST_JOBS = """
SELECT id, type, queue, priority, scheduled_at AS "ready since", now() - scheduled_at AS waited
FROM $schema.live_jobs
WHERE state = 'available'
ORDER BY scheduled_at
LIMIT 20
"""
LONGEST_RUNNING = """
SELECT live.id, live.type, live.queue, live.attempt, live.attempted_at AS "began", now() - live.attempted_at AS "runs for",
       COALESCE(NULLIF(nodes.label, ''), live.node::text) AS node
FROM $schema.live_jobs AS live
LEFT JOIN $schema.nodes ON nodes.id = live.node
WHERE live.state = 'executing'
ORDER BY live.attempted_at
LIMIT 20
"""
FAILURES = """
SELECT error->>'at' AS "at", jobs.id, jobs.type, jobs.queue, jobs.state, error->>'attempt' AS attempt,
       error->>'type' AS error, left(error->>'message', 200) AS message, error->>'trace_id' AS trace
FROM (SELECT id, type, queue, state, errors FROM $schema.live_jobs WHERE errors IS NOT NULL
      UNION ALL
      SELECT id, type, queue, state, errors FROM $schema.finished_jobs
      WHERE errors IS NOT NULL AND $__timeFilter(finished_at)) AS jobs
CROSS JOIN LATERAL jsonb_array_elements(jobs.errors) AS error
ORDER BY error->>'at' DESC
LIMIT 50
"""
DEAD_LETTERS = """
SELECT finished_at AS "died at", id, type, queue, attempt, errors->-1->>'type' AS error,
       left(errors->-1->>'message', 200) AS message, errors->-1->>'trace_id' AS trace
FROM $schema.finished_jobs
WHERE state = 'discarded'
ORDER BY finished_at DESC
LIMIT 50
"""
WHO = """
SELECT nodes.label, nodes.id, nodes.pid, nodes.started_at AS "since", nodes.expires_at AS "lease until",
       leaders.node IS NOT NULL AS leads, (SELECT string_agg(queue, ', ') FROM jsonb_object_keys(nodes.serves) AS queue) AS queues
FROM $schema.nodes
LEFT JOIN $schema.leaders ON leaders.node = nodes.id AND leaders.expires_at > now()
ORDER BY nodes.started_at
"""
CONTROLS = """
SELECT queue, NULLIF(node, '') AS node, paused_at AS "paused since", max_demand, updated_at AS "asked at"
FROM $schema.queues
ORDER BY queue, node
"""
CRONS = """
SELECT entry.name, expression, tz AS zone, paused_at AS "paused since", done_until AS "done until",
       (SELECT max(slot) FROM $schema.cron_slots AS slots WHERE slots.entry = entry.name) AS "last slot"
FROM $schema.cron_entries AS entry
ORDER BY entry.name
"""


def database() -> Dashboard:
    """The dashboard."""
    made = board("rxjobs-sql", "rxjobs / Database", "What PostgreSQL itself says. It needs no metrics.", "postgres", "jaeger")
    made.with_variable(schema()).refresh("30s")
    for title, panels in (("Now", now()), ("Jobs", jobs()), ("Nodes and queues", nodes())):
        made.with_row(Row(title))
        for panel in panels:
            made.with_panel(panel)
    return made


def now() -> Panels:
    """Six numbers."""
    panels = [
        number("Ready", "Jobs that could run.", sql(READY)),
        number("Oldest", "How long the oldest of them has waited.", sql(OLDEST), unit="s", limits={60: "orange", 300: "red"}),
        number("Running", "Jobs that run.", sql(RUNNING)),
        number("Dead letters", "Kept as long as other finished jobs, a day by default.", sql(DEAD), limits={1: "orange"}),
        number("Nodes", "Whose lease holds.", sql(NODES), limits={0: "red", 1: "green"}),
        # text is not among what is reduced unless all fields are
        number("Leader", "Who rescues, promotes and prunes.", sql(LEADER)).reduce_options(
            ReduceDataOptions().calcs(["lastNotNull"]).fields("/.*/")
        ),
    ]
    return [panel.datasource(POSTGRES) for panel in panels]


def jobs() -> Panels:
    """What waits, runs and failed."""
    trace = explore_trace("${__value.raw}")
    return [
        rows("Queues", "Jobs that are not finished.", sql(DEPTHS), POSTGRES, span=8),
        rows("Waiting longest", "Jobs that are ready.", sql(OLDEST_JOBS), POSTGRES, span=8),
        rows("Running longest", "And where.", sql(LONGEST_RUNNING), POSTGRES, span=8),
        link(
            rows("Failures", "Attempts that failed. A trace id leads to its trace.", sql(FAILURES), POSTGRES),
            "trace",
            "Look at this trace",
            trace,
        ),
        link(rows("The dead letters", "And their last error.", sql(DEAD_LETTERS), POSTGRES), "trace", "Look at this trace", trace),
    ]


def nodes() -> Panels:
    """Who runs, and what was asked of queues."""
    return [
        rows("Who runs what", "Nodes whose lease holds, or ended and was not noticed yet.", sql(WHO), POSTGRES, span=14),
        rows("Asked of queues", "At run time: paused, or scaled.", sql(CONTROLS), POSTGRES, span=10),
        rows("Cron", "Its entries, and the last slot of each that a job was made for.", sql(CRONS), POSTGRES, span=24),
    ]
