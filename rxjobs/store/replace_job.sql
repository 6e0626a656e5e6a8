-- Write over what job $1 has, unless it has begun: $2 arguments, $3 priority, $4 max_attempts, $5 tags (array literal), $6 meta,
-- each NULL to leave it as it is, but $7 says whether tags and meta are to be replaced; $8 whether the time is: $9 instant, or $10
-- delay (s). $11 channel to notify, or NULL. Returns its state.
WITH changed AS (
    UPDATE {schema}.live_jobs
    SET args = COALESCE($2::text::json, args),
        priority = COALESCE($3::smallint, priority),
        max_attempts = greatest(COALESCE($4::integer, max_attempts), attempt + 1),
        tags = CASE WHEN 'tags' = ANY ($7::text[]) THEN $5::text::text[] ELSE tags END,
        meta = CASE WHEN 'meta' = ANY ($7::text[]) THEN $6::text::jsonb ELSE meta END,
        scheduled_at = CASE WHEN $8 THEN due ELSE scheduled_at END,
        state = CASE WHEN NOT $8 THEN state
                     WHEN due <= now() THEN 'available'
                     ELSE 'scheduled' END::{schema}.job_state
    FROM (SELECT COALESCE($9::timestamptz, now() + $10::float8 * interval '1 second')) AS at (due)
    WHERE id = $1 AND state IN ('scheduled', 'available', 'retryable')
    RETURNING state, queue
), woken AS (
    SELECT pg_notify($11, queue)
    FROM changed
    WHERE $11 IS NOT NULL AND state = 'available' AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT state::text AS state
FROM changed, (SELECT count(*) FROM woken) AS all_woken
