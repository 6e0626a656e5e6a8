-- For each of the queues $1: how many jobs are ready, counted up to $2, and for how many seconds the oldest of those has been.
SELECT asked.queue, ready.jobs, ready.oldest
FROM unnest($1::text[]) AS asked (queue)
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, extract(epoch FROM now() - min(scheduled_at))::float8 AS oldest
    FROM (
        SELECT scheduled_at
        FROM {schema}.live_jobs
        WHERE state = 'available' AND queue = asked.queue
        ORDER BY priority, scheduled_at, id  -- as the index has it: what is counted is not sorted
        LIMIT $2
    ) AS counted
) AS ready
ORDER BY asked.queue
