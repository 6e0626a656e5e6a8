-- Whether a job of queue $1 whose type is in $2, whose tags contain all of $3 and whose arguments contain $4 (JSON) is ready before the
-- marks of its priority ($5 instants, $6 ids), and the seconds that it took to find out: mostly to step over what was claimed before.
WITH behind AS MATERIALIZED (
    SELECT EXISTS (
        SELECT
        FROM unnest($5::timestamptz[], $6::bigint[]) WITH ORDINALITY AS mark (scheduled_at, id, place)
        CROSS JOIN LATERAL (
            SELECT
            FROM {schema}.live_jobs AS job
            WHERE state = 'available'
              AND queue = $1
              AND priority = mark.place - 1
              AND (job.scheduled_at, job.id) < (mark.scheduled_at, mark.id)
              AND type = ANY ($2::text[])
              AND ($3::text[] = '{}' OR COALESCE(tags, '{}') @> $3)
              AND ($4::text = '{}' OR {schema}.contains(args, $4::text::jsonb))
            ORDER BY job.scheduled_at, job.id
            LIMIT 1
        ) AS ready
    ) AS is_ready
)
SELECT is_ready, extract(epoch FROM clock_timestamp() - now())::float8 AS seconds
FROM behind
