-- Write down that jobs $1 were completed, where node $2 still has them claimed for attempt $3. Returns the ids that were.
WITH gone AS (
    DELETE FROM {schema}.live_jobs
    WHERE id = ANY ($1::bigint[]) AND attempt = $3 AND node = $2 AND state = 'executing'
    RETURNING id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node, type, queue, args, meta, tags, errors,
              progress, unique_key, unique_states
)
INSERT INTO {schema}.finished_jobs (state, id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
                                    type, queue, args, meta, tags, errors, progress, unique_key, unique_states)
SELECT 'completed', id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
       type, queue, args, meta, tags, errors, progress, unique_key, unique_states
FROM gone
RETURNING id
