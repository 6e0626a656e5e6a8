-- Delete those of the jobs $1 that are not executing. Returns the ids that were, and those that are left.
-- Who is waited for is the first alone, as in cancel_jobs.
WITH first AS MATERIALIZED (
    SELECT id
    FROM {schema}.live_jobs
    WHERE id = ($1::bigint[])[1] AND state <> 'executing'
    FOR UPDATE
), first_ended AS MATERIALIZED (
    SELECT id
    FROM {schema}.finished_jobs
    WHERE id = ($1::bigint[])[1]
    FOR UPDATE
), asked AS MATERIALIZED (
    SELECT id
    FROM {schema}.live_jobs
    WHERE id = ANY ($1::bigint[]) AND state <> 'executing' AND (SELECT count(*) FROM first) >= 0
    FOR UPDATE SKIP LOCKED
), ended AS MATERIALIZED (
    SELECT id
    FROM {schema}.finished_jobs
    WHERE id = ANY ($1::bigint[]) AND (SELECT count(*) FROM first_ended) >= 0
    FOR UPDATE SKIP LOCKED
), live AS (
    DELETE FROM {schema}.live_jobs AS job
    USING asked
    WHERE job.id = ANY ($1::bigint[]) AND job.id = asked.id
    RETURNING job.id
), finished AS (
    DELETE FROM {schema}.finished_jobs AS job
    USING ended
    WHERE job.id = ANY ($1::bigint[]) AND job.id = ended.id
    RETURNING job.id
)
SELECT id, false AS is_left FROM live
UNION ALL
SELECT id, false FROM finished
UNION ALL
SELECT id, true
FROM {schema}.live_jobs AS job
WHERE id = ANY ($1::bigint[]) AND state <> 'executing' AND NOT EXISTS (SELECT FROM asked WHERE asked.id = job.id)
UNION ALL
SELECT id, true
FROM {schema}.finished_jobs AS job
WHERE id = ANY ($1::bigint[]) AND NOT EXISTS (SELECT FROM ended WHERE ended.id = job.id)
