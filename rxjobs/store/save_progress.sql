-- Write down how far jobs have come that node $1 still has claimed for that attempt: $2 ids, $3 attempts, $4 instants of the claims,
-- $5 what they say (JSON). Returns the ids of those, and those that are left. Who is waited for is the first alone, as in cancel_jobs.
WITH first AS MATERIALIZED (
    SELECT id
    FROM {schema}.live_jobs
    WHERE id = ($2::bigint[])[1] AND node = $1 AND state = 'executing'
    FOR NO KEY UPDATE
), ours AS MATERIALIZED (
    SELECT id
    FROM {schema}.live_jobs
    WHERE id = ANY ($2::bigint[]) AND node = $1 AND state = 'executing' AND (SELECT count(*) FROM first) >= 0
    FOR NO KEY UPDATE SKIP LOCKED
), written AS (
    UPDATE {schema}.live_jobs AS job
    SET progress = given.progress::jsonb
    FROM ours
    JOIN unnest($2::bigint[], $3::integer[], $4::timestamptz[], $5::text[]) AS given (id, attempt, attempted_at, progress)
      ON given.id = ours.id
    WHERE job.id = ANY ($2::bigint[]) AND job.id = ours.id AND job.attempt = given.attempt AND job.attempted_at = given.attempted_at
    RETURNING job.id
)
SELECT id, false AS is_left FROM written
UNION ALL
SELECT id, true
FROM {schema}.live_jobs AS job
WHERE id = ANY ($2::bigint[]) AND node = $1 AND state = 'executing' AND NOT EXISTS (SELECT FROM ours WHERE ours.id = job.id)
