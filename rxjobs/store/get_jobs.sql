-- The jobs with the ids $1.
SELECT id, type, queue, state, args, attempt, max_attempts, priority, inserted_at, scheduled_at, attempted_at, finished_at, errors, forensics, result,
       progress, meta, tags, node
FROM {schema}.jobs
WHERE id = ANY ($1::bigint[])
ORDER BY id
