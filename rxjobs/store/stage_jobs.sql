-- Make up to $1 jobs available whose time has come, and wake their queues ($2 channel, or NULL), while node $3 leads in term $4: of those
-- that were due at $5 or later, since the entries of those that were staged before stay in the index until vacuum may remove them.
-- Returns how many, the seconds until the next is due (NULL when none waits), the instant up to which none is left, and the seconds
-- that it took to find them; and how many were to be retried.
WITH due AS (
    SELECT id, scheduled_at, state
    FROM {schema}.live_jobs
    WHERE state IN ('scheduled', 'retryable') AND scheduled_at >= $5::timestamptz AND scheduled_at <= now()
      AND EXISTS (SELECT FROM {schema}.leaders WHERE node = $3 AND term = $4 AND expires_at > now())
    ORDER BY scheduled_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), found AS MATERIALIZED (
    SELECT array_agg(id) AS ids,
           CASE WHEN count(*) = $1 THEN max(scheduled_at) ELSE now() END AS until,
           extract(epoch FROM clock_timestamp() - now())::float8 AS seconds
    FROM due
), staged AS (
    UPDATE {schema}.live_jobs
    SET state = 'available'
    WHERE id = ANY ((SELECT ids FROM found)::bigint[])
    RETURNING queue
), woken AS (
    SELECT pg_notify($2, queue)
    FROM (SELECT DISTINCT queue FROM staged) AS queues
    WHERE $2 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT (SELECT count(*) FROM staged) AS staged,
       (SELECT count(*) FROM woken) AS woken,
       (SELECT extract(epoch FROM min(scheduled_at) - now())::float8
        FROM {schema}.live_jobs
        WHERE state IN ('scheduled', 'retryable') AND scheduled_at > now()) AS next,
       (SELECT count(*) FROM due WHERE state = 'retryable') AS retried,
       until, seconds
FROM found
