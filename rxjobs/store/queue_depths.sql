-- How many jobs stand in each queue and state that is not finished.
SELECT queue, state::text AS state, count(*) AS jobs
FROM {schema}.live_jobs
GROUP BY queue, state
ORDER BY queue, state
