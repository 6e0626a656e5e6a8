-- Delete those of the jobs $1 that are not executing. Returns the ids that were.
-- Locked first, in the order that others lock them in, so that nobody waits for another in a circle.
WITH asked AS MATERIALIZED (
    SELECT id
    FROM {schema}.live_jobs
    WHERE id = ANY ($1::bigint[]) AND state <> 'executing'
    ORDER BY id
    FOR UPDATE
), live AS (
    DELETE FROM {schema}.live_jobs AS job
    USING asked
    WHERE job.id = ANY ($1::bigint[]) AND job.id = asked.id
    RETURNING job.id
), finished AS (
    DELETE FROM {schema}.finished_jobs
    WHERE id = ANY ($1::bigint[])
    RETURNING id
)
SELECT id FROM live UNION ALL SELECT id FROM finished
