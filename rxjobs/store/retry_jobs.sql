-- Make those of the jobs $1 available at once that wait, or ended otherwise than completed; where attempts are used up, $2 more.
-- $3 channel to notify, or NULL. Returns the ids that were, none whose unique key a job that has ended stands for; and those that are
-- left. Who is waited for is the first alone, as in cancel_jobs.
-- In the order of their keys, as insert_unique does, so that the two never wait for each other in a circle; and all that before a row
-- that waits is locked, since insert_unique waits for those too.
WITH first_ended AS MATERIALIZED (
    SELECT id
    FROM {schema}.finished_jobs
    WHERE id = ($1::bigint[])[1] AND state IN ('discarded', 'cancelled')
    FOR UPDATE
), ended AS MATERIALIZED (
    SELECT id
    FROM {schema}.finished_jobs
    WHERE id = ANY ($1::bigint[]) AND state IN ('discarded', 'cancelled') AND (SELECT count(*) FROM first_ended) >= 0
    FOR UPDATE SKIP LOCKED
), back AS (
    DELETE FROM {schema}.finished_jobs AS job
    USING ended
    WHERE job.id = ANY ($1::bigint[]) AND job.id = ended.id
      AND (unique_key IS NULL
           OR NOT EXISTS (SELECT FROM {schema}.finished_jobs AS twin
                          WHERE twin.unique_key = job.unique_key AND twin.state = ANY (twin.unique_states) AND twin.id <> job.id))
    RETURNING job.id, inserted_at, attempted_at, attempt, max_attempts, priority, type, queue, args, meta, tags, errors,
              unique_key, unique_states
), made AS (
    INSERT INTO {schema}.live_jobs (id, inserted_at, scheduled_at, attempted_at, state, attempt, max_attempts, priority,
                                    type, queue, args, meta, tags, errors, unique_key, unique_states)
    SELECT id, inserted_at, now(), attempted_at, 'available', attempt, greatest(max_attempts, attempt + $2::integer), priority,
           type, queue, args, meta, tags, errors, unique_key, unique_states
    FROM back
    ORDER BY unique_key, id
    RETURNING id, queue
), first AS MATERIALIZED (
    SELECT id
    FROM {schema}.live_jobs
    WHERE id = ($1::bigint[])[1] AND state IN ('scheduled', 'retryable')
    FOR UPDATE
), waiting AS MATERIALIZED (
    SELECT id
    FROM {schema}.live_jobs
    WHERE id = ANY ($1::bigint[]) AND state IN ('scheduled', 'retryable') AND (SELECT count(*) FROM first) >= 0
    FOR UPDATE SKIP LOCKED
), changed AS (
    UPDATE {schema}.live_jobs AS job
    SET state = 'available', scheduled_at = now(), max_attempts = greatest(max_attempts, attempt + $2::integer)
    FROM waiting
    WHERE job.id = ANY ($1::bigint[]) AND job.id = waiting.id
    RETURNING job.id, queue
), all_back AS (
    SELECT id, queue FROM made UNION ALL SELECT id, queue FROM changed
), woken AS (
    SELECT pg_notify($3, queue)
    FROM (SELECT DISTINCT queue FROM all_back) AS queues
    WHERE $3 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT id, false AS is_left
FROM all_back, (SELECT count(*) FROM woken) AS all_woken
UNION ALL
SELECT id, true
FROM {schema}.live_jobs AS job
WHERE id = ANY ($1::bigint[]) AND state IN ('scheduled', 'retryable') AND NOT EXISTS (SELECT FROM waiting WHERE waiting.id = job.id)
UNION ALL
SELECT id, true
FROM {schema}.finished_jobs AS job
WHERE id = ANY ($1::bigint[]) AND state IN ('discarded', 'cancelled') AND NOT EXISTS (SELECT FROM ended WHERE ended.id = job.id)
