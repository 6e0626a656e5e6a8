-- Insert jobs, and wake their queues once the transaction commits: $1 types, $2 queues, $3 arguments (JSON), $4 priorities,
-- $5 max_attempts, $6 tags (array literals), $7 meta (JSON), $8 delays (s), $9 instants, $10 channel to notify, or NULL.
WITH made AS (
    INSERT INTO {schema}.live_jobs (type, queue, args, priority, max_attempts, tags, meta, scheduled_at, state)
    SELECT type, queue, args::json, priority, max_attempts, tags::text[], meta::jsonb, due,
           (CASE WHEN due <= now() THEN 'available' ELSE 'scheduled' END)::{schema}.job_state
    FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::integer[], $6::text[], $7::text[], $8::float8[],
                $9::timestamptz[])
         WITH ORDINALITY AS new (type, queue, args, priority, max_attempts, tags, meta, delay, instant, place),
         LATERAL (SELECT COALESCE(instant, now() + delay * interval '1 second')) AS at (due)
    ORDER BY place
    RETURNING id, state::text AS state, queue
), woken AS (
    SELECT pg_notify($10, queue)
    FROM (SELECT DISTINCT queue FROM made WHERE state = 'available') AS queues
    WHERE $10 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT id, state
FROM made, (SELECT count(*) FROM woken) AS all_woken
