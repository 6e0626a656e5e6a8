-- The queues that hold unfinished jobs, by state: how many, and for how many seconds the oldest has waited of those that may run.
SELECT queue, state::text AS state, count(*) AS jobs,
       extract(epoch FROM now() - min(scheduled_at) FILTER (WHERE state = 'available'))::float8 AS waited
FROM {schema}.live_jobs
GROUP BY queue, state
ORDER BY queue, state
