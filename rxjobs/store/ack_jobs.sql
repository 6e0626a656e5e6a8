-- Write down how jobs ended, where node $1 still has them claimed for that attempt: $2 ids, $3 attempts, $4 instants of the claims,
-- $5 new states, $6 delays (s; NULL keeps the instant), $7 attempts given back, $8 errors (JSON, or NULL), $9 results (JSON, or NULL),
-- $10 what was known of each when it was discarded (JSON, or NULL), $11 channel to notify, or NULL. Returns the ids that were.
-- One that was asked to be cancelled meanwhile, and would go on, is cancelled.
-- The claim's instant is compared too: an attempt that was given back has the number of the next one.
-- ANY ($2) stands beside the join so that the rows are found by the primary key whatever the planner thinks of unnest.
WITH given AS MATERIALIZED (
    SELECT id, attempt, attempted_at, state::{schema}.job_state AS state, delay, given_back,
           CASE WHEN error IS NULL THEN NULL ELSE jsonb_build_array(error::jsonb || jsonb_build_object('at', now())) END AS error,
           result, forensics
    FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[], $5::text[], $6::float8[], $7::integer[], $8::text[], $9::text[],
                $10::text[])
         AS given (id, attempt, attempted_at, state, delay, given_back, error, result, forensics)
), gone AS (
    DELETE FROM {schema}.live_jobs AS job
    USING given
    WHERE job.id = ANY ($2::bigint[]) AND job.id = given.id AND job.attempt = given.attempt AND job.node = $1
      AND job.attempted_at = given.attempted_at AND job.state = 'executing'
      AND (given.state IN ('completed', 'discarded', 'cancelled') OR job.cancel_at IS NOT NULL)
    RETURNING given.state IN ('completed', 'discarded', 'cancelled') AS is_last, given.state AS end_state, given.error, given.result,
              given.forensics, job.*
), kept AS (
    INSERT INTO {schema}.finished_jobs (state, id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
                                        type, queue, args, meta, tags, errors, result, forensics, progress, unique_key, unique_states)
    SELECT CASE WHEN is_last THEN end_state ELSE 'cancelled' END, id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts,
           priority, node, type, queue, args, meta, tags,
           CASE WHEN is_last THEN COALESCE(errors || error, errors, error)
                ELSE COALESCE(errors, '[]') || COALESCE(error, '[]') || jsonb_build_array(jsonb_build_object(
                    'attempt', attempt, 'type', 'rxjobs.Cancel', 'message', 'cancelled by request', 'traceback', '',
                    'node', node, 'at', now(), 'duration', NULL, 'trace_id', NULL)) END,
           result::json, CASE WHEN is_last THEN forensics::jsonb END, progress, unique_key, unique_states
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
      AND job.cancel_at IS NULL
    RETURNING job.id, job.queue, job.state
), woken AS (
    SELECT pg_notify($11, queue)
    FROM (SELECT DISTINCT queue FROM changed WHERE state = 'available') AS queues
    WHERE $11 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT id
FROM (SELECT id FROM kept UNION ALL SELECT id FROM changed) AS written, (SELECT count(*) FROM woken) AS all_woken
