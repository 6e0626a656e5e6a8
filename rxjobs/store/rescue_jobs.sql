-- Take up to $2 jobs from the dead node $1: available at once the first time, after the default backoff from then on, discarded
-- where attempts are used up. The row names no node from then on, so that a late ack of the dead one is known for stale.
-- $3 channel to notify, or NULL. Returns the ids: none of a node whose lease was renewed meanwhile, which waits for that to be known.
-- A node that jobs are taken from cannot renew any more, so that it learns of it. Only while node $4 leads in term $5.
WITH dead AS (
    UPDATE {schema}.nodes
    SET expires_at = '-infinity'
    WHERE id = $1 AND expires_at < now()
      AND EXISTS (SELECT FROM {schema}.leaders WHERE node = $4 AND term = $5 AND expires_at > now())
    RETURNING id
), lost AS MATERIALIZED (
    SELECT id, attempt >= max_attempts AS is_last, attempt,
           (SELECT count(*) FROM jsonb_array_elements(COALESCE(errors, '[]')) AS error WHERE error ->> 'type' = 'rxjobs.NodeLost') AS rescues,
           jsonb_build_array(jsonb_build_object('attempt', attempt, 'type', 'rxjobs.NodeLost', 'at', now(), 'node', node,
               'message', 'the node that ran it was lost', 'traceback', '', 'duration', NULL, 'trace_id', NULL)) AS error
    FROM {schema}.live_jobs
    WHERE node = (SELECT id FROM dead) AND state = 'executing'
    ORDER BY id
    LIMIT $2
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {schema}.live_jobs AS job
    USING lost
    WHERE job.id = lost.id AND lost.is_last
    RETURNING job.*, lost.error
), kept AS (
    INSERT INTO {schema}.finished_jobs (state, id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
                                        type, queue, args, meta, tags, errors)
    SELECT 'discarded', id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, NULL,
           type, queue, args, meta, tags, COALESCE(errors, '[]') || error
    FROM gone
    RETURNING id
), changed AS (
    UPDATE {schema}.live_jobs AS job
    SET state = (CASE WHEN lost.rescues = 0 THEN 'available' ELSE 'retryable' END)::{schema}.job_state,
        scheduled_at = CASE WHEN lost.rescues = 0 THEN now()
                       ELSE now() + (15 + 2 ^ least(lost.attempt, 20)) * (1 + random() * 0.1) * interval '1 second' END,
        errors = COALESCE(job.errors, '[]') || lost.error,
        node = NULL
    FROM lost
    WHERE job.id = lost.id AND NOT lost.is_last
    RETURNING job.id, job.queue, job.state
), woken AS (
    SELECT pg_notify($3, queue)
    FROM (SELECT DISTINCT queue FROM changed WHERE state = 'available') AS queues
    WHERE $3 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT id
FROM (SELECT id FROM kept UNION ALL SELECT id FROM changed) AS rescued, (SELECT count(*) FROM woken) AS all_woken
