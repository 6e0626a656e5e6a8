-- Raise up to $3 jobs by one step of priority that have been ready for longer than $4 seconds, the oldest first, while node $5 leads in
-- term $6: those of one queue and priority, the next that has ready jobs behind queue $1 and priority $2, and wake the queue ($7 channel,
-- or NULL), since who claimed meanwhile has passed them by. Returns which those are, and how many were raised; no row when none comes next.
-- Whoever asks goes from the low numbers to the high ones: so none is raised twice.
WITH place AS MATERIALIZED (
    SELECT queue, priority
    FROM {schema}.live_jobs
    WHERE state = 'available'
      AND (queue, priority) > ($1::text, $2::smallint)
      AND EXISTS (SELECT FROM {schema}.leaders WHERE node = $5 AND term = $6 AND expires_at > now())
    ORDER BY queue, priority, scheduled_at, id  -- as the index has it: the first is the one that is read
    LIMIT 1
), aged AS (
    UPDATE {schema}.live_jobs
    SET priority = priority - 1
    WHERE ctid = ANY (ARRAY(
        SELECT ctid
        FROM {schema}.live_jobs
        WHERE state = 'available'
          AND queue = (SELECT queue FROM place)
          AND priority = (SELECT priority FROM place)
          AND priority > 0
          AND scheduled_at < now() - $4::float8 * interval '1 second'
        ORDER BY queue, priority, scheduled_at, id
        LIMIT $3
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING id
), counted AS MATERIALIZED (
    SELECT count(*) AS jobs FROM aged
), woken AS (
    SELECT pg_notify($7, queue)
    FROM place, counted
    WHERE jobs > 0 AND $7 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT queue, priority, jobs, (SELECT count(*) FROM woken) AS woken
FROM place, counted
