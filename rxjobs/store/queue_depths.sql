-- How many jobs stand in each queue and state that is not finished, and for how many seconds the oldest has waited of those that may run;
-- of the finished, the dead letters, of which there is an index.
SELECT queue, state::text AS state, count(*) AS jobs,
       extract(epoch FROM now() - min(scheduled_at) FILTER (WHERE state = 'available'))::float8 AS oldest
FROM {schema}.live_jobs
GROUP BY queue, state
UNION ALL
SELECT queue, 'discarded', count(*), NULL
FROM {schema}.finished_jobs
WHERE state = 'discarded'
GROUP BY queue
ORDER BY queue, state
