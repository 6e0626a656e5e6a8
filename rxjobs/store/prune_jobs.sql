-- Delete up to $2 jobs that finished more than $1 seconds ago, while node $3 leads in term $4. Returns how many.
WITH old AS (
    DELETE FROM {schema}.finished_jobs
    WHERE ctid = ANY (ARRAY(
        SELECT ctid
        FROM {schema}.finished_jobs
        WHERE finished_at < now() - $1::float8 * interval '1 second'
          AND EXISTS (SELECT FROM {schema}.leaders WHERE node = $3 AND term = $4 AND expires_at > now())
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*)
FROM old
