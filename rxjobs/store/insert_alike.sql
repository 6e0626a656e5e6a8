-- Insert jobs that differ in nothing but their arguments, as most do that are inserted together, and wake their queue once the
-- transaction commits: $1 type, $2 queue, $3 arguments of each (JSON), $4 priority, $5 max_attempts, $6 tags, $7 meta (JSON),
-- $8 delay (s), $9 instant, $10 channel to notify, or NULL. An array a column, as in insert_jobs, takes twice the time.
WITH made AS (
    INSERT INTO {schema}.live_jobs (type, queue, args, priority, max_attempts, tags, meta, scheduled_at, state)
    SELECT $1, $2, args::json, $4::smallint, $5::integer, $6::text[], $7::text::jsonb, due,
           (CASE WHEN due <= now() THEN 'available' ELSE 'scheduled' END)::{schema}.job_state
    FROM unnest($3::text[]) WITH ORDINALITY AS new (args, place),
         (SELECT COALESCE($9::timestamptz, now() + $8::float8 * interval '1 second') OFFSET 0) AS at (due)
    ORDER BY place
    RETURNING id, state::text AS state
), woken AS (
    SELECT pg_notify($10, $2)
    WHERE $10 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5 AND EXISTS (SELECT FROM made WHERE state = 'available')
)
SELECT id, state
FROM made, (SELECT count(*) FROM woken) AS all_woken
