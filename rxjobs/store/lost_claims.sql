-- Give back the jobs that node $1 has claimed without knowing it, since the answer was lost: all that it claimed before $3 (NULL for
-- none) but for those it holds ($2). The attempt did not begin, so it is given back. $4 channel to notify, or NULL.
-- Returns the ids, and this server's time. Reads the whole table unless $3 is NULL: to be asked when an answer was lost.
WITH changed AS (
    UPDATE {schema}.live_jobs
    SET state = 'available', attempt = attempt - 1, node = NULL
    WHERE $3::timestamptz IS NOT NULL
      AND node = $1 AND state = 'executing' AND NOT id = ANY ($2::bigint[])
      AND attempted_at < $3::timestamptz
    RETURNING id, queue
), woken AS (
    SELECT pg_notify($4, queue)
    FROM (SELECT DISTINCT queue FROM changed) AS queues
    WHERE $4 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT ARRAY(SELECT id FROM changed) AS ids, (SELECT count(*) FROM woken) AS woken, now() AS now
