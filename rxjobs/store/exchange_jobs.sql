-- Write down that jobs $6 were completed for attempt $7, as ack_completed does, and claim up to $2 jobs, as fetch_jobs does, in one
-- transaction: the places that the ones leave are the others' at once, for one commit and one round trip in place of two.
-- Gives how many were written down with each row claimed, and on a row of NULLs where none was.
WITH gone AS (
    DELETE FROM {schema}.live_jobs
    WHERE id = ANY ($6::bigint[]) AND attempt = $7 AND node = $4 AND state = 'executing'
    RETURNING id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node, type, queue, args, meta, tags, errors,
              progress, unique_key, unique_states
), finished AS (
    INSERT INTO {schema}.finished_jobs (state, id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
                                        type, queue, args, meta, tags, errors, progress, unique_key, unique_states)
    SELECT 'completed', id, inserted_at, scheduled_at, attempted_at, attempt, max_attempts, priority, node,
           type, queue, args, meta, tags, errors, progress, unique_key, unique_states
    FROM gone
    RETURNING id
), claimed AS (
{fetch_jobs}
)
SELECT claimed.*, written
FROM (SELECT count(*) AS written FROM finished) AS finished
LEFT JOIN claimed ON true
