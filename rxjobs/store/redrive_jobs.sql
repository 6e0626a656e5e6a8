-- Bring the dead letters $1 back, $2 more attempts for each where they are used up: the first at the instant $3 (NULL: now) plus $4 seconds,
-- each further one $5 seconds after the one before. $6 channel to notify, or NULL. Returns the ids of those that were, none whose unique
-- key a job that has ended stands for; those that are left; and the instant. Who is waited for is the first alone, as in cancel_jobs.
WITH first AS MATERIALIZED (
    SELECT id
    FROM {schema}.finished_jobs
    WHERE id = ($1::bigint[])[1] AND state = 'discarded'
    FOR UPDATE
), dead AS MATERIALIZED (
    SELECT id
    FROM {schema}.finished_jobs
    WHERE id = ANY ($1::bigint[]) AND state = 'discarded' AND (SELECT count(*) FROM first) >= 0
    FOR UPDATE SKIP LOCKED
), back AS (
    DELETE FROM {schema}.finished_jobs AS job
    USING dead
    WHERE job.id = ANY ($1::bigint[]) AND job.id = dead.id
      AND (unique_key IS NULL
           OR NOT EXISTS (SELECT FROM {schema}.finished_jobs AS twin
                          WHERE twin.unique_key = job.unique_key AND twin.state = ANY (twin.unique_states) AND twin.id <> job.id))
    RETURNING job.*
), due AS MATERIALIZED (
    SELECT *, greatest(now(), COALESCE($3::timestamptz, now())
                              + ($4::float8 + $5::float8 * (row_number() OVER (ORDER BY id) - 1)) * interval '1 second') AS due_at
    FROM back
), made AS (
    INSERT INTO {schema}.live_jobs (id, inserted_at, scheduled_at, attempted_at, state, attempt, max_attempts, priority,
                                    type, queue, args, meta, tags, errors, unique_key, unique_states)
    SELECT id, inserted_at, due_at, attempted_at, (CASE WHEN due_at > now() THEN 'scheduled' ELSE 'available' END)::{schema}.job_state,
           attempt, greatest(max_attempts, attempt + $2::integer), priority, type, queue, args, meta, tags, errors,
           unique_key, unique_states
    FROM due
    ORDER BY unique_key, id
    RETURNING id, queue, state
), woken AS (
    SELECT pg_notify($6, queue)
    FROM (SELECT DISTINCT queue FROM made WHERE state = 'available') AS queues
    WHERE $6 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT COALESCE((SELECT array_agg(id) FROM made), '{}') AS ids, COALESCE($3::timestamptz, now()) AS since, (SELECT count(*) FROM woken),
       ARRAY(SELECT id
             FROM {schema}.finished_jobs AS job
             WHERE id = ANY ($1::bigint[]) AND state = 'discarded' AND NOT EXISTS (SELECT FROM dead WHERE dead.id = job.id)
             ORDER BY id) AS ids_left
