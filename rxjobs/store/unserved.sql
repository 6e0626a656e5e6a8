-- The queues and job types of jobs that have been ready for more than $1 seconds, and that no living node takes; whether one takes any
-- job from the queue, and how many there are. Reads all that is ready: to be asked seldom.
WITH served AS MATERIALIZED (
    SELECT queue, type
    FROM {schema}.nodes, jsonb_each(serves) AS of (queue, types), jsonb_array_elements_text(types) AS type
    WHERE expires_at > now()
), waiting AS MATERIALIZED (
    SELECT queue, type, count(*) AS jobs
    FROM {schema}.live_jobs
    WHERE state = 'available' AND scheduled_at < now() - $1::float8 * interval '1 second'
    GROUP BY queue, type
)
SELECT queue, type, queue IN (SELECT queue FROM served) AS is_queue_served, jobs
FROM waiting
WHERE (queue, type) NOT IN (SELECT queue, type FROM served)
ORDER BY queue, type
