-- Make those of the jobs $1 available at once that wait, or ended otherwise than completed; where attempts are used up, $2 more.
-- $3 channel to notify, or NULL. Returns the ids that were: none whose unique key a job that has ended stands for.
-- In the order of their keys, as insert_unique does, so that the two never wait for each other in a circle.
WITH back AS (
    DELETE FROM {schema}.finished_jobs AS job
    WHERE id = ANY ($1::bigint[]) AND state IN ('discarded', 'cancelled')
      AND (unique_key IS NULL
           OR NOT EXISTS (SELECT FROM {schema}.finished_jobs AS twin
                          WHERE twin.unique_key = job.unique_key AND twin.state = ANY (twin.unique_states) AND twin.id <> job.id))
    RETURNING id, inserted_at, attempted_at, attempt, max_attempts, priority, type, queue, args, meta, tags, errors,
              unique_key, unique_states
), made AS (
    INSERT INTO {schema}.live_jobs (id, inserted_at, scheduled_at, attempted_at, state, attempt, max_attempts, priority,
                                    type, queue, args, meta, tags, errors, unique_key, unique_states)
    SELECT id, inserted_at, now(), attempted_at, 'available', attempt, greatest(max_attempts, attempt + $2::integer), priority,
           type, queue, args, meta, tags, errors, unique_key, unique_states
    FROM back
    ORDER BY unique_key, id
    RETURNING id, queue
), changed AS (
    UPDATE {schema}.live_jobs
    SET state = 'available', scheduled_at = now(), max_attempts = greatest(max_attempts, attempt + $2::integer)
    WHERE id = ANY ($1::bigint[]) AND state IN ('scheduled', 'retryable')
    RETURNING id, queue
), all_back AS (
    SELECT id, queue FROM made UNION ALL SELECT id, queue FROM changed
), woken AS (
    SELECT pg_notify($3, queue)
    FROM (SELECT DISTINCT queue FROM all_back) AS queues
    WHERE $3 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT id
FROM all_back, (SELECT count(*) FROM woken) AS all_woken
