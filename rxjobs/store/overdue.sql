-- The queues and job types of jobs that have been ready for more than $1 seconds although a living node takes them and its queue is
-- neither paused there nor limited, nor the type's breaker open: how many there are, for how many seconds the oldest has been ready, how many of the queue's run
-- on living nodes, and whether any of the queue's was begun in the last $1 seconds. Reads all of the live jobs: to be asked seldom.
WITH taken AS MATERIALIZED (
    SELECT served.queue, type
    FROM {schema}.nodes AS node, jsonb_each(node.serves) AS served (queue, types), jsonb_array_elements_text(served.types) AS type
    WHERE node.expires_at > now()
      AND NOT EXISTS (
          SELECT
          FROM {schema}.queues AS asked
          WHERE asked.queue = served.queue
            AND asked.node IN ('', node.label, node.id::text)
            AND (asked.paused_at IS NOT NULL OR asked.pace IS NOT NULL)
      )
), waiting AS MATERIALIZED (
    SELECT queue, type, count(*) AS jobs, extract(epoch FROM now() - min(scheduled_at))::float8 AS waited
    FROM {schema}.live_jobs
    WHERE state = 'available' AND scheduled_at < now() - $1::float8 * interval '1 second'
    GROUP BY queue, type
), begun AS MATERIALIZED (
    SELECT job.queue, count(*) FILTER (WHERE job.state = 'executing' AND node.expires_at > now()) AS executing,
           max(job.attempted_at) AS last
    FROM {schema}.live_jobs AS job
    LEFT JOIN {schema}.nodes AS node ON node.id = job.node
    WHERE job.attempted_at IS NOT NULL
    GROUP BY job.queue
), ended AS MATERIALIZED (
    -- what was begun since then has ended since then, by which finished jobs can be found
    SELECT DISTINCT queue
    FROM {schema}.finished_jobs
    WHERE finished_at > now() - $1::float8 * interval '1 second' AND attempted_at > now() - $1::float8 * interval '1 second'
)
SELECT waiting.queue, waiting.type, waiting.jobs, waiting.waited, COALESCE(begun.executing, 0) AS executing,
       COALESCE(begun.last > now() - $1::float8 * interval '1 second', false)
           OR waiting.queue IN (SELECT queue FROM ended) AS is_moving
FROM waiting
LEFT JOIN begun ON begun.queue = waiting.queue
WHERE (waiting.queue, waiting.type) IN (SELECT queue, type FROM taken)
  AND waiting.type NOT IN (SELECT type FROM {schema}.breakers WHERE state <> 'closed')
ORDER BY waiting.queue, waiting.type
