-- Insert jobs that differ in nothing but their arguments, as most do that are inserted together, and wake their queue once the
-- transaction commits: $1 type, $2 queue, $3 arguments of each (JSON), $4 priority, $5 max_attempts, $6 tags, $7 meta (JSON),
-- $8 delay (s), $9 instant, $10 channel to notify, or NULL. An array a column, as in insert_jobs, takes twice the time.
-- Gives their ids in one array, and the state of them all. One row is joined to what an array unnests to, in the array's order,
-- and ids are given out in the order in which rows are inserted: to sort them by place would take a tenth more.
WITH alike AS MATERIALIZED (
    SELECT due, (CASE WHEN due <= now() THEN 'available' ELSE 'scheduled' END)::{schema}.job_state AS state,
           $6::text[] AS tags, $7::text::jsonb AS meta
    FROM (SELECT COALESCE($9::timestamptz, now() + $8::float8 * interval '1 second') OFFSET 0) AS at (due)
), made AS (
    INSERT INTO {schema}.live_jobs (type, queue, args, priority, max_attempts, tags, meta, scheduled_at, state)
    SELECT $1, $2, args::json, $4::smallint, $5::integer, tags, meta, due, state
    FROM unnest($3::text[]) AS args, alike
    RETURNING id
), woken AS (
    SELECT pg_notify($10, $2)
    FROM alike
    WHERE $10 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5 AND state = 'available'
)
SELECT ids, state::text AS state
FROM (SELECT array_agg(id) AS ids FROM made) AS made, alike, (SELECT count(*) FROM woken) AS all_woken
