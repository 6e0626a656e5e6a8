-- All that a node asks while it has nothing to do, at once; numbers and instants go to and fro as text, since asyncpg looks other arrays
-- up before it can use them, on each connection. For its sources, each with its queue in $1 and ten marks in $2 (instants)
-- and $3 (ids), as fetch_jobs_where has them: the places of those for which a job is ready whose type is in $4. What is asked of the
-- queues $5 for a node that goes by the names $6, the empty one among them: its own max_demand goes before that of all nodes, and
-- where a queue is limited, the seconds after which to ask again for what a claim was not given, and when its limits were changed, at
-- the latest. Where it leads: of the jobs due at $7 or later (NULL where it does not) the seconds until the first is, below 0 if it has
-- been, or NULL; the seconds that it took to find that out; and whether a node's lease ran out. Of the jobs that node $8 (or NULL)
-- executes those that are to be cancelled: their ids, and the attempts. How breakers stand that are not closed or have counted
-- failures, and those of the job types $9: as JSON, the probes of living nodes among them.
WITH pending AS MATERIALIZED (
    SELECT clock_timestamp() AS began,
           (SELECT scheduled_at
            FROM {schema}.live_jobs
            WHERE state IN ('scheduled', 'retryable') AND scheduled_at >= $7::timestamptz
            ORDER BY scheduled_at
            LIMIT 1) AS due
), staging AS MATERIALIZED (
    SELECT extract(epoch FROM due - now())::float8 AS next, extract(epoch FROM clock_timestamp() - began)::float8 AS seconds
    FROM pending
), marks AS MATERIALIZED (
    SELECT $2::text[]::timestamptz[] AS instants, $3::text[]::bigint[] AS ids
), ready AS MATERIALIZED (
    SELECT ARRAY(
        SELECT asked.place
        FROM unnest($1::text[]) WITH ORDINALITY AS asked (queue, place)
        WHERE EXISTS (
            SELECT
            FROM marks
            CROSS JOIN generate_series(0, 9) AS of (priority)
            CROSS JOIN LATERAL (
                SELECT
                FROM {schema}.live_jobs AS job
                WHERE state = 'available'
                  AND queue = asked.queue
                  AND priority = of.priority
                  AND (job.scheduled_at, job.id)
                      >= (instants[10 * asked.place - 9 + of.priority], ids[10 * asked.place - 9 + of.priority])
                  AND type = ANY ($4::text[])
                ORDER BY job.scheduled_at, job.id
                LIMIT 1
            ) AS job
        )
    ) AS places
), controls AS (
    SELECT queue,
           bool_or(paused_at IS NOT NULL) AS is_paused,
           (array_agg(max_demand ORDER BY node DESC) FILTER (WHERE max_demand IS NOT NULL))[1] AS max_demand,
           max(pace) AS pace,
           max(updated_at) FILTER (WHERE pace IS NOT NULL) AS limited_at
    FROM {schema}.queues
    WHERE queue = ANY ($5::text[]) AND node = ANY ($6::text[])
    GROUP BY queue
), cancelling AS MATERIALIZED (
    SELECT array_agg(id)::text[] AS ids, array_agg(attempt)::text[] AS attempts
    FROM {schema}.live_jobs
    WHERE node = $8::uuid AND cancel_at IS NOT NULL AND state = 'executing'
)
SELECT ready.places::text[] AS ready, staging.next, staging.seconds, now() AS now,
       $7::timestamptz IS NOT NULL AND EXISTS (SELECT FROM {schema}.nodes WHERE expires_at < now()) AS is_a_node_gone,
       cancelling.ids AS cancelling_ids, cancelling.attempts AS cancelling_attempts,
       controls.queue, controls.is_paused, controls.max_demand, controls.pace, controls.limited_at,
       (
           SELECT json_agg(json_build_object(
               'type', type, 'version', version, 'state', state, 'is_by_hand', is_by_hand, 'failures', failures, 'successes', successes,
               'probing', (SELECT count(*) FROM unnest(probing) AS of (node) JOIN {schema}.nodes ON id = of.node AND expires_at > now()),
               'wait', extract(epoch FROM opened_at + reset_timeout * interval '1 second' - now())::float8,
               'calls', CASE this.half - breakers.half WHEN 0 THEN calls + calls_before WHEN 1 THEN calls ELSE 0 END,
               'failed', CASE this.half - breakers.half WHEN 0 THEN failed + failed_before WHEN 1 THEN failed ELSE 0 END
           ))
           FROM {schema}.breakers
           CROSS JOIN LATERAL (SELECT floor(extract(epoch FROM now()) / half_seconds)::bigint AS half) AS this
           WHERE state <> 'closed' OR failures > 0 OR type = ANY ($9::text[])
              OR failed + failed_before > 0 AND this.half - breakers.half BETWEEN 0 AND 1
       )::text AS breakers
FROM staging
CROSS JOIN ready
CROSS JOIN cancelling
LEFT JOIN controls ON true
