-- Give back the jobs that node $1 has claimed without knowing it, since the answer was lost: all that it has claimed for more than
-- $3 seconds but for those it holds ($2). The attempt did not begin, so it is given back. $4 channel to notify, or NULL.
WITH changed AS (
    UPDATE {schema}.live_jobs
    SET state = 'available', attempt = attempt - 1, node = NULL
    WHERE node = $1 AND state = 'executing' AND NOT id = ANY ($2::bigint[])
      AND attempted_at < now() - $3::float8 * interval '1 second'
    RETURNING id, queue
), woken AS (
    SELECT pg_notify($4, queue)
    FROM (SELECT DISTINCT queue FROM changed) AS queues
    WHERE $4 IS NOT NULL
)
SELECT id
FROM changed, (SELECT count(*) FROM woken) AS all_woken
