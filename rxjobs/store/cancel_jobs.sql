-- Cancel those of the jobs $1 that wait; those that are executing are marked, so that their node stops them, and are cancelled once they
-- have ended. $2 channel to notify of that, or NULL. Returns the ids of both, and whether they are executing; and those that are left.
-- Locked first, since a job that is begun or given back meanwhile is to be found in one state or the other. Who is waited for is the
-- first alone, while none is held; others that somebody has locked are left for another time: so nobody waits for this in a circle.
WITH first AS MATERIALIZED (
    SELECT id
    FROM {schema}.live_jobs
    WHERE id = ($1::bigint[])[1]
    FOR UPDATE
), asked AS MATERIALIZED (
    SELECT id, state = 'executing' AS is_executing
    FROM {schema}.live_jobs
    WHERE id = ANY ($1::bigint[]) AND (SELECT count(*) FROM first) >= 0
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {schema}.live_jobs AS job
    USING asked
    WHERE job.id = ANY ($1::bigint[]) AND job.id = asked.id AND NOT asked.is_executing
    RETURNING job.*
), kept AS (
    INSERT INTO {schema}.finished_jobs (state, id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
                                        type, queue, args, meta, tags, errors, progress, unique_key, unique_states)
    SELECT 'cancelled', id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
           type, queue, args, meta, tags, errors, progress, unique_key, unique_states
    FROM gone
    RETURNING id
), marked AS (
    UPDATE {schema}.live_jobs AS job
    SET cancel_at = COALESCE(job.cancel_at, now())
    FROM asked
    WHERE job.id = ANY ($1::bigint[]) AND job.id = asked.id AND asked.is_executing
    RETURNING job.id
), told AS (
    SELECT pg_notify($2, '!')
    WHERE $2 IS NOT NULL AND EXISTS (SELECT FROM marked) AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT id, is_executing, false AS is_left
FROM (SELECT id, false AS is_executing FROM kept UNION ALL SELECT id, true FROM marked) AS changed,
     (SELECT count(*) FROM told) AS all_told
UNION ALL
SELECT id, false, true
FROM {schema}.live_jobs AS job
WHERE id = ANY ($1::bigint[]) AND NOT EXISTS (SELECT FROM asked WHERE asked.id = job.id)
