-- How long jobs took that ended within the last $1 seconds, by type, from their claim to their end in seconds: of up to $2 jobs, the $3
-- types of the slowest.
SELECT type, count(*) AS jobs, count(*) FILTER (WHERE state = 'discarded') AS failed,
       percentile_disc(0.5) WITHIN GROUP (ORDER BY took) AS p50, percentile_disc(0.95) WITHIN GROUP (ORDER BY took) AS p95,
       max(took) AS longest
FROM (
    SELECT type, state, extract(epoch FROM finished_at - attempted_at)::float8 AS took
    FROM {schema}.finished_jobs
    WHERE finished_at > now() - $1::float8 * interval '1 second' AND attempted_at IS NOT NULL
    LIMIT $2
) AS ended
GROUP BY type
ORDER BY p95 DESC, type
LIMIT $3
