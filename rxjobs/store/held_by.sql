-- The jobs that node $1 executes, $2 at most, the oldest first.
SELECT id, type, attempt, max_attempts
FROM {schema}.live_jobs
WHERE node = $1 AND state = 'executing'
ORDER BY id
LIMIT $2
