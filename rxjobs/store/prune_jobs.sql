-- Delete up to $2 jobs that finished more than $1 seconds ago, dead letters more than $5 seconds ago, while node $3 leads in term $4.
-- Of those that are no dead letters only such as finished at $6 (NULL: ever) or later: among what is older none was left. It would be read again and
-- again for the dead letters in it, which may be kept for longer, and are found by an index of their own.
-- Of a partitioned history only what finished before it was, which is in one table: a ctid does not say of which table it is. The others
-- are looked after by tend_history.
-- Returns how many of each state, and in a row without a state the instant before which jobs are old.
WITH ended AS (
    DELETE FROM {schema}.finished_jobs
    WHERE ctid = ANY (ARRAY(
        SELECT ctid
        FROM {schema}.finished_jobs
        WHERE finished_at >= COALESCE($6::timestamptz, '-infinity')
          AND finished_at < now() - $1::float8 * interval '1 second'
          AND finished_at < COALESCE((SELECT since FROM {schema}.history), 'infinity')
          AND state <> 'discarded'
          AND EXISTS (SELECT FROM {schema}.leaders WHERE node = $3 AND term = $4 AND expires_at > now())
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ))
      AND finished_at < COALESCE((SELECT since FROM {schema}.history), 'infinity')
    RETURNING state
), dead AS (
    DELETE FROM {schema}.finished_jobs
    WHERE ctid = ANY (ARRAY(
        SELECT ctid
        FROM {schema}.finished_jobs
        WHERE finished_at < now() - $5::float8 * interval '1 second'
          AND finished_at < COALESCE((SELECT since FROM {schema}.history), 'infinity')
          AND state = 'discarded'
          AND EXISTS (SELECT FROM {schema}.leaders WHERE node = $3 AND term = $4 AND expires_at > now())
        ORDER BY finished_at
        LIMIT $2 - (SELECT count(*) FROM ended)
        FOR UPDATE SKIP LOCKED
    ))
      AND finished_at < COALESCE((SELECT since FROM {schema}.history), 'infinity')
    RETURNING state
)
SELECT state::text AS state, count(*) AS count, NULL::timestamptz AS up_to
FROM (SELECT state FROM ended UNION ALL SELECT state FROM dead) AS old
GROUP BY state
UNION ALL
SELECT NULL, 0, now() - $1::float8 * interval '1 second'
