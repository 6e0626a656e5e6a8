-- Cancel those of the jobs $1 that wait, or that the dead node $2 had, and cannot go on: another job stands for their unique key, as
-- $3 says of each. Returns the ids that were.
WITH gone AS (
    DELETE FROM {schema}.live_jobs AS job
    USING unnest($1::bigint[], $3::bigint[]) AS given (id, twin)
    WHERE job.id = given.id AND NOT job.state = ANY (job.unique_states)
      AND (job.state <> 'executing'
           OR job.node = $2 AND EXISTS (SELECT FROM {schema}.nodes WHERE id = $2 AND expires_at < now()))
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
