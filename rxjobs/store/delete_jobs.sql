-- Delete those of the jobs $1 that are not executing. Returns the ids that were.
WITH live AS (
    DELETE FROM {schema}.live_jobs
    WHERE id = ANY ($1::bigint[]) AND state <> 'executing'
    RETURNING id
), finished AS (
    DELETE FROM {schema}.finished_jobs
    WHERE id = ANY ($1::bigint[])
    RETURNING id
)
SELECT id FROM live UNION ALL SELECT id FROM finished
