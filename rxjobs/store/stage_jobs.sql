-- Make up to $1 jobs available whose time has come, and wake their queues ($2 channel, or NULL), while node $3 leads in term $4.
-- Returns how many, and the seconds until the next is due (NULL when none waits).
WITH due AS (
    SELECT id
    FROM {schema}.live_jobs
    WHERE state IN ('scheduled', 'retryable') AND scheduled_at <= now()
      AND EXISTS (SELECT FROM {schema}.leaders WHERE node = $3 AND term = $4 AND expires_at > now())
    ORDER BY scheduled_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), staged AS (
    UPDATE {schema}.live_jobs
    SET state = 'available'
    WHERE id = ANY (ARRAY(SELECT id FROM due))
    RETURNING queue
), woken AS (
    SELECT pg_notify($2, queue)
    FROM (SELECT DISTINCT queue FROM staged) AS queues
    WHERE $2 IS NOT NULL
)
SELECT (SELECT count(*) FROM staged) AS staged,
       (SELECT count(*) FROM woken) AS woken,
       (SELECT extract(epoch FROM min(scheduled_at) - now())::float8
        FROM {schema}.live_jobs
        WHERE state IN ('scheduled', 'retryable') AND scheduled_at > now()) AS next
