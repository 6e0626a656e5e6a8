-- All that a node asks while it has nothing to do, at once. For its sources, each with its queue in $1 and ten marks in $2 (instants) and $3
-- (ids), as fetch_jobs has them: the places of those for which a job is ready whose type is in $4. What is asked of the queues $5 for a
-- node that goes by the names $6, the empty one among them: its own max_demand goes before that of all nodes. Where it leads: of the
-- jobs due at $7 or later (NULL where it does not) the seconds until the first is, below 0 if it has been, or NULL; the seconds that it
-- took to find that out; and whether a node's lease ran out.
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
), ready AS MATERIALIZED (
    SELECT ARRAY(
        SELECT asked.place
        FROM unnest($1::text[]) WITH ORDINALITY AS asked (queue, place)
        WHERE EXISTS (
            SELECT
            FROM generate_series(0, 9) AS of (priority)
            CROSS JOIN LATERAL (
                SELECT
                FROM {schema}.live_jobs AS job
                WHERE state = 'available'
                  AND queue = asked.queue
                  AND priority = of.priority
                  AND (job.scheduled_at, job.id)
                      >= (($2::timestamptz[])[10 * asked.place - 9 + of.priority], ($3::bigint[])[10 * asked.place - 9 + of.priority])
                  AND type = ANY ($4::text[])
                ORDER BY job.scheduled_at, job.id
                LIMIT 1
            ) AS job
        )
    ) AS places
), controls AS (
    SELECT queue,
           bool_or(paused_at IS NOT NULL) AS is_paused,
           (array_agg(max_demand ORDER BY node DESC) FILTER (WHERE max_demand IS NOT NULL))[1] AS max_demand
    FROM {schema}.queues
    WHERE queue = ANY ($5::text[]) AND node = ANY ($6::text[])
    GROUP BY queue
)
SELECT ready.places AS ready, staging.next, staging.seconds, now() AS now,
       $7::timestamptz IS NOT NULL AND EXISTS (SELECT FROM {schema}.nodes WHERE expires_at < now()) AS is_a_node_gone,
       controls.queue, controls.is_paused, controls.max_demand
FROM staging
CROSS JOIN ready
LEFT JOIN controls ON true
