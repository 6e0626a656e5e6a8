-- Up to $6 jobs, the newest first, older than id $5: of the states $1, queues $2 and types $3, and with the tags $4 (each NULL for any).
SELECT id, type, queue, state, args, attempt, max_attempts, priority, inserted_at, scheduled_at, attempted_at, finished_at, errors, forensics, result,
       progress, meta, tags, node
FROM {schema}.jobs
WHERE ($1::text[] IS NULL OR state = ANY ($1))
  AND ($2::text[] IS NULL OR queue = ANY ($2))
  AND ($3::text[] IS NULL OR type = ANY ($3))
  AND ($4::text[] IS NULL OR tags @> $4)
  AND ($5::bigint IS NULL OR id < $5)
ORDER BY id DESC
LIMIT $6
