-- Delete up to $2 jobs that finished more than $1 seconds ago. Returns how many.
WITH old AS (
    DELETE FROM {schema}.finished_jobs
    WHERE ctid = ANY (ARRAY(
        SELECT ctid
        FROM {schema}.finished_jobs
        WHERE finished_at < now() - $1::float8 * interval '1 second'
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*)
FROM old
