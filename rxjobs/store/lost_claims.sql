-- Give back the jobs that node $1 has claimed without knowing it, since the answer was lost: all that it claimed before $3 (NULL for
-- none) but for those it holds ($2). The attempt did not begin, so it is given back. $4 channel to notify, or NULL.
-- Those that were asked to be cancelled meanwhile are.
-- Numbers go to and fro as text: for an array of them the driver looks three times what that is, on every connection.
-- Returns the ids, and this server's time. Reads the whole table unless $3 is NULL: to be asked when an answer was lost.
WITH lost AS MATERIALIZED (
    SELECT id, cancel_at IS NOT NULL AS is_cancelled
    FROM {schema}.live_jobs
    WHERE $3::timestamptz IS NOT NULL
      AND node = $1 AND state = 'executing' AND id <> ALL (ARRAY(SELECT held::bigint FROM unnest($2::text[]) AS held))
      AND attempted_at < $3::timestamptz
    FOR UPDATE
), gone AS (
    DELETE FROM {schema}.live_jobs
    WHERE id = ANY (ARRAY(SELECT id FROM lost WHERE is_cancelled))
    RETURNING *
), kept AS (
    INSERT INTO {schema}.finished_jobs (state, id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
                                        type, queue, args, meta, tags, errors, progress, unique_key, unique_states)
    SELECT 'cancelled', id, inserted_at, scheduled_at, attempted_at, attempt - 1, max_attempts, priority, NULL,
           type, queue, args, meta, tags, errors, progress, unique_key, unique_states
    FROM gone
    RETURNING id
), changed AS (
    UPDATE {schema}.live_jobs
    SET state = 'available', attempt = attempt - 1, node = NULL
    WHERE id = ANY (ARRAY(SELECT id FROM lost WHERE NOT is_cancelled))
    RETURNING id, queue
), woken AS (
    SELECT pg_notify($4, queue)
    FROM (SELECT DISTINCT queue FROM changed) AS queues
    WHERE $4 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT ARRAY(SELECT id::text FROM changed UNION ALL SELECT id::text FROM kept) AS ids, (SELECT count(*) FROM woken) AS woken, now() AS now
