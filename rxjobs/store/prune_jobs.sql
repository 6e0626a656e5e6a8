-- Delete up to $2 jobs that finished more than $1 seconds ago, dead letters more than $5 seconds ago, while node $3 leads in term $4.
-- Returns how many of each state.
WITH old AS (
    DELETE FROM {schema}.finished_jobs
    WHERE ctid = ANY (ARRAY(
        SELECT ctid
        FROM {schema}.finished_jobs
        WHERE finished_at < now() - least($1::float8, $5::float8) * interval '1 second'
          AND finished_at < now() - (CASE WHEN state = 'discarded' THEN $5::float8 ELSE $1::float8 END) * interval '1 second'
          AND EXISTS (SELECT FROM {schema}.leaders WHERE node = $3 AND term = $4 AND expires_at > now())
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING state
)
SELECT state::text AS state, count(*)
FROM old
GROUP BY state
