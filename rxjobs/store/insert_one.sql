-- Insert one job that may run at once, as most do that are inserted alone, and wake its queue once the transaction commits: $1 type,
-- $2 queue, $3 arguments (JSON), $4 priority, $5 max_attempts, $6 tags, $7 meta (JSON), $8 channel to notify, or NULL.
-- A plan of one step, where insert_alike for one row takes two fifths more. The instant and the state are the columns' defaults.
INSERT INTO {schema}.live_jobs (type, queue, args, priority, max_attempts, tags, meta)
VALUES ($1, $2, $3::text::json, $4::smallint, $5::integer, $6::text[], $7::text::jsonb)
RETURNING id, CASE WHEN $8::text IS NOT NULL AND pg_notification_queue_usage() < 0.5 THEN pg_notify($8, $2) END AS woken
