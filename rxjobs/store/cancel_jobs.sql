-- Cancel those of the jobs $1 that wait. Returns the ids that were; one that is executing is not.
WITH gone AS (
    DELETE FROM {schema}.live_jobs
    WHERE id = ANY ($1::bigint[]) AND state <> 'executing'
    RETURNING id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node, type, queue, args, meta, tags, errors,
              unique_key, unique_states
)
INSERT INTO {schema}.finished_jobs (state, id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
                                    type, queue, args, meta, tags, errors, unique_key, unique_states)
SELECT 'cancelled', id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
       type, queue, args, meta, tags, errors, unique_key, unique_states
FROM gone
RETURNING id
