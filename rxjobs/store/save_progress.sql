-- Write down how far jobs have come that node $1 still has claimed for that attempt: $2 ids, $3 attempts, $4 instants of the claims,
-- $5 what they say (JSON). Returns the ids of those.
UPDATE {schema}.live_jobs AS job
SET progress = given.progress::jsonb
FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[], $5::text[]) AS given (id, attempt, attempted_at, progress)
WHERE job.id = ANY ($2::bigint[]) AND job.id = given.id AND job.attempt = given.attempt AND job.node = $1
  AND job.attempted_at = given.attempted_at AND job.state = 'executing'
RETURNING job.id
