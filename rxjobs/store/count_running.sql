-- Have the jobs of queue $1 that run take the places that it is limited to, also those that were claimed before it was.
-- Reads the whole table: to be asked when limits have changed.
WITH running AS MATERIALIZED (
    SELECT job.id, job.attempted_at, limited.concurrency, limited.key_concurrency,
           CASE WHEN limited.path IS NOT NULL THEN {schema}.key_of(job.args, limited.path) END AS key
    FROM {schema}.live_jobs AS job
    JOIN {schema}.limits AS limited ON limited.queue = job.queue
    WHERE job.queue = $1 AND job.state = 'executing'
), of_all AS (
    UPDATE {schema}.limits
    SET jobs = ARRAY(SELECT id FROM running ORDER BY id), claimed_at = ARRAY(SELECT attempted_at FROM running ORDER BY id)
    WHERE queue = $1 AND concurrency IS NOT NULL
)
INSERT INTO {schema}.limit_keys (queue, key, jobs, claimed_at)
SELECT $1, key, array_agg(id ORDER BY id), array_agg(attempted_at ORDER BY id)
FROM running
WHERE key_concurrency IS NOT NULL AND key IS NOT NULL
GROUP BY key
ON CONFLICT (queue, key) DO UPDATE
SET jobs = excluded.jobs, claimed_at = excluded.claimed_at
