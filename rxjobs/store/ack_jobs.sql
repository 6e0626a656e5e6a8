-- Write down how jobs ended, where node $1 still has them claimed for that attempt: $2 ids, $3 attempts, $4 instants of the claims,
-- $5 new states, $6 delays (s; NULL keeps the instant), $7 attempts given back, $8 errors (JSON, or NULL), $9 channel to notify, or
-- NULL. Returns the ids that were.
-- The claim's instant is compared too: an attempt that was given back has the number of the next one.
-- ANY ($2) stands beside the join so that the rows are found by the primary key whatever the planner thinks of unnest.
WITH given AS MATERIALIZED (
    SELECT id, attempt, attempted_at, state::{schema}.job_state AS state, delay, given_back,
           CASE WHEN error IS NULL THEN NULL ELSE jsonb_build_array(error::jsonb || jsonb_build_object('at', now())) END AS error
    FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[], $5::text[], $6::float8[], $7::integer[], $8::text[])
         AS given (id, attempt, attempted_at, state, delay, given_back, error)
), gone AS (
    DELETE FROM {schema}.live_jobs AS job
    USING given
    WHERE job.id = ANY ($2::bigint[]) AND job.id = given.id AND job.attempt = given.attempt AND job.node = $1
      AND job.attempted_at = given.attempted_at AND job.state = 'executing' AND given.state IN ('completed', 'discarded', 'cancelled')
    RETURNING given.state AS end_state, given.error, job.*
), kept AS (
    INSERT INTO {schema}.finished_jobs (state, id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
                                        type, queue, args, meta, tags, errors, unique_key, unique_states)
    SELECT end_state, id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
           type, queue, args, meta, tags, COALESCE(errors || error, errors, error), unique_key, unique_states
    FROM gone
    RETURNING id
), changed AS (
    UPDATE {schema}.live_jobs AS job
    SET state = given.state,
        attempt = job.attempt - given.given_back,
        scheduled_at = COALESCE(now() + given.delay * interval '1 second', job.scheduled_at),
        errors = COALESCE(job.errors || given.error, job.errors, given.error)
    FROM given
    WHERE job.id = ANY ($2::bigint[]) AND job.id = given.id AND job.attempt = given.attempt AND job.node = $1
      AND job.attempted_at = given.attempted_at AND job.state = 'executing' AND given.state IN ('available', 'scheduled', 'retryable')
    RETURNING job.id, job.queue, job.state
), woken AS (
    SELECT pg_notify($9, queue)
    FROM (SELECT DISTINCT queue FROM changed WHERE state = 'available') AS queues
    WHERE $9 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT id
FROM (SELECT id FROM kept UNION ALL SELECT id FROM changed) AS written, (SELECT count(*) FROM woken) AS all_woken
