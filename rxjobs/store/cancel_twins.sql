-- Cancel those of the jobs $1 that wait, or that the dead node $2 had, and cannot go on: another job stands for their unique key, as
-- $3 says of each. Returns the ids that were.
-- Locked first, in the order of their ids, so that two who cancel the same ones never wait for each other in a circle.
WITH asked AS MATERIALIZED (
    SELECT id
    FROM {schema}.live_jobs
    WHERE id = ANY ($1::bigint[]) AND NOT state = ANY (unique_states)
      AND (state <> 'executing'
           OR node = $2 AND EXISTS (SELECT FROM {schema}.nodes AS dead WHERE dead.id = $2 AND expires_at < now()))
    ORDER BY id
    FOR UPDATE
), gone AS (
    DELETE FROM {schema}.live_jobs AS job
    USING asked
    JOIN unnest($1::bigint[], $3::bigint[]) AS given (id, twin) ON given.id = asked.id
    WHERE job.id = ANY ($1::bigint[]) AND job.id = asked.id
    RETURNING job.*, given.twin
)
INSERT INTO {schema}.finished_jobs (state, id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
                                    type, queue, args, meta, tags, errors, progress, unique_key, unique_states)
SELECT 'cancelled', id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
       type, queue, args, meta, tags,
       COALESCE(errors, '[]') || jsonb_build_array(jsonb_build_object(
           'attempt', attempt, 'type', 'rxjobs.Cancel', 'message', 'job ' || twin || ' has its unique key', 'traceback', '',
           'node', NULL, 'at', now(), 'duration', NULL, 'trace_id', NULL)),
       progress, unique_key, unique_states
FROM gone
RETURNING id
