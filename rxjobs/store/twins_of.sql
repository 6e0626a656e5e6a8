-- Those of the jobs $1 that do not stand for their unique key now, though another job does, or would before them: id, and the other's.
-- Where $1 is NULL, of those that are to be staged.
WITH entering AS MATERIALIZED (
    SELECT id, unique_key
    FROM {schema}.live_jobs
    WHERE unique_key IS NOT NULL AND NOT state = ANY (unique_states)
      AND (id = ANY ($1::bigint[]) OR $1::bigint[] IS NULL AND state = 'retryable' AND scheduled_at <= now())
    UNION ALL
    SELECT id, unique_key
    FROM {schema}.finished_jobs
    WHERE unique_key IS NOT NULL AND id = ANY ($1::bigint[])
)
SELECT job.id, twin.id AS twin
FROM entering AS job
CROSS JOIN LATERAL (
    SELECT id
    FROM {schema}.live_jobs
    WHERE unique_key = job.unique_key AND state = ANY (unique_states) AND id <> job.id
    UNION ALL
    SELECT id
    FROM entering
    WHERE unique_key = job.unique_key AND id < job.id
    LIMIT 1
) AS twin
