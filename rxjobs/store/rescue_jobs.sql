-- Take from the dead node $1 jobs that it claimed: $2 ids, $3 attempts, $4 delays (s): available at once the first time, after the
-- delay from then on, discarded where attempts are used up, cancelled where that was asked for. The row names no node from then on, so that a late ack of the dead one is
-- known for stale. $5 channel to notify, or NULL. Returns the ids: none of a node whose lease was renewed meanwhile, which waits for
-- that to be known. Those that were taken already are returned again, in case that the answer was lost.
-- A node that jobs are taken from cannot renew any more, so that it learns of it. Only while node $6 leads in term $7.
-- $8 what is known of each in case it is discarded (JSON, or NULL): the arguments' size is added, and what its node told last.
WITH leads AS MATERIALIZED (
    SELECT FROM {schema}.leaders WHERE node = $6 AND term = $7 AND expires_at > now()
), dead AS (
    UPDATE {schema}.nodes
    SET expires_at = '-infinity'
    WHERE id = $1 AND expires_at < now() AND EXISTS (SELECT FROM leads)
    RETURNING id
), given AS MATERIALIZED (
    SELECT id, attempt, delay, known::jsonb AS known,
           jsonb_build_object('attempt', attempt, 'type', 'rxjobs.NodeLost', 'node', $1::uuid) AS mark
    FROM unnest($2::bigint[], $3::integer[], $4::float8[], $8::text[]) AS given (id, attempt, delay, known)
), lost AS MATERIALIZED (
    SELECT job.id, job.attempt >= job.max_attempts OR job.cancel_at IS NOT NULL AS is_last, given.delay, given.known,
           COALESCE(job.errors, '[]') @> '[{"type": "rxjobs.NodeLost"}]' AS was_rescued,
           jsonb_build_array(mark || jsonb_build_object('at', now(), 'message', 'the node that ran it was lost', 'traceback', '',
                                                        'duration', NULL, 'trace_id', NULL))
               || CASE WHEN job.cancel_at IS NULL THEN '[]' ELSE jsonb_build_array(jsonb_build_object(
                   'attempt', job.attempt, 'type', 'rxjobs.Cancel', 'message', 'cancelled by request', 'traceback', '',
                   'node', NULL, 'at', now(), 'duration', NULL, 'trace_id', NULL)) END AS error
    FROM {schema}.live_jobs AS job
    JOIN given ON job.id = given.id AND job.attempt = given.attempt
    WHERE job.id = ANY ($2::bigint[]) AND job.node = (SELECT id FROM dead) AND job.state = 'executing'
    ORDER BY job.id
    FOR UPDATE OF job SKIP LOCKED
), gone AS (
    DELETE FROM {schema}.live_jobs AS job
    USING lost
    WHERE job.id = lost.id AND lost.is_last
    RETURNING job.*, lost.error, lost.known
), kept AS (
    INSERT INTO {schema}.finished_jobs (state, id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
                                        type, queue, args, meta, tags, errors, forensics, progress, unique_key, unique_states)
    SELECT CASE WHEN cancel_at IS NULL THEN 'discarded' ELSE 'cancelled' END::{schema}.job_state, id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, NULL,
           type, queue, args, meta, tags, COALESCE(errors, '[]') || error,
           CASE WHEN cancel_at IS NULL THEN COALESCE(known, '{}') || jsonb_build_object(
               'args_bytes', octet_length(args::text),
               'lost_node', (SELECT jsonb_build_object('id', id, 'label', label, 'load', status -> 'load', 'memory', status -> 'memory',
                                                       'loop_delay', status -> 'loop_delay')
                             FROM {schema}.nodes WHERE id = $1)) END,
           progress, unique_key, unique_states
    FROM gone
    RETURNING id
), changed AS (
    UPDATE {schema}.live_jobs AS job
    SET state = (CASE WHEN lost.was_rescued THEN 'retryable' ELSE 'available' END)::{schema}.job_state,
        scheduled_at = now() + (CASE WHEN lost.was_rescued THEN lost.delay ELSE 0 END) * interval '1 second',
        errors = COALESCE(job.errors, '[]') || lost.error,
        node = NULL
    FROM lost
    WHERE job.id = lost.id AND NOT lost.is_last
    RETURNING job.id, job.queue, job.state
), taken_before AS (
    SELECT job.id
    FROM (SELECT id, errors FROM {schema}.live_jobs WHERE id = ANY ($2::bigint[])
          UNION ALL
          SELECT id, errors FROM {schema}.finished_jobs WHERE id = ANY ($2::bigint[])) AS job
    JOIN given ON job.id = given.id AND job.errors @> jsonb_build_array(given.mark)
    WHERE EXISTS (SELECT FROM leads)
), woken AS (
    SELECT pg_notify($5, queue)
    FROM (SELECT DISTINCT queue FROM changed WHERE state = 'available') AS queues
    WHERE $5 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT id
FROM (SELECT id FROM kept UNION ALL SELECT id FROM changed UNION ALL SELECT id FROM taken_before) AS rescued,
     (SELECT count(*) FROM woken) AS all_woken
