-- The jobs that node $1 executes, $2 at most, the oldest first.
SELECT id, type, queue, attempt, max_attempts, cancel_at IS NOT NULL AS is_to_be_cancelled
FROM {schema}.live_jobs
WHERE node = $1 AND state = 'executing'
ORDER BY id
LIMIT $2
