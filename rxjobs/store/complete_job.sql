-- Write down that job $1 was completed, where node $2 still has it claimed for attempt $3, since the instant $4: $5 its result (JSON, or
-- NULL). Returns its id if it was. Sent over a job's own connection, as a part of its transaction.
WITH gone AS (
    DELETE FROM {schema}.live_jobs
    WHERE id = $1::bigint AND node = $2::uuid AND attempt = $3::integer AND attempted_at = $4::timestamptz AND state = 'executing'
    RETURNING *
)
INSERT INTO {schema}.finished_jobs (state, id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
                                    type, queue, args, meta, tags, errors, result, progress, unique_key, unique_states)
SELECT 'completed', id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
       type, queue, args, meta, tags, errors, $5::text::json, progress, unique_key, unique_states
FROM gone
RETURNING id
