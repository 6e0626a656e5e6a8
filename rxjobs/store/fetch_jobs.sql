-- Claim up to $2 jobs of queue $1 whose type is in $3 for node $4, the most urgent first. Returned in any order.
-- Arguments of more than $5 bytes, which no app has enqueued, come back as NULL; small ones are not measured, as most are.
-- Instants come as seconds since 1970, exact to the microsecond: asyncpg takes four times as long to read a timestamp.
-- By ctid, since joining the picked ids back makes the planner choose a hash join over the whole table.
-- A node whose lease has run out claims nothing: its jobs could be taken from it at once. Nor does one for which the queue is paused.
-- Of a limited queue nothing is claimed here at all: see fetch_limited. Where the index is crowded, see fetch_jobs_where.
UPDATE {schema}.live_jobs
SET state = 'executing', attempt = attempt + 1, attempted_at = now(), node = $4
WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM {schema}.live_jobs
    WHERE state = 'available'
      AND queue = $1
      AND type = ANY ($3::text[])
      AND EXISTS (
          SELECT FROM {schema}.nodes AS claiming
          WHERE claiming.id = $4 AND expires_at > now()
            AND NOT EXISTS (
                SELECT FROM {schema}.queues
                WHERE queue = $1 AND node IN ('', claiming.label, claiming.id::text) AND (paused_at IS NOT NULL OR pace IS NOT NULL)
            )
      )
    ORDER BY priority, scheduled_at, id
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))
RETURNING id, type, priority, attempt, max_attempts, date_part('epoch', inserted_at) AS inserted_at,
          date_part('epoch', scheduled_at) AS scheduled_at, date_part('epoch', attempted_at) AS attempted_at,
          CASE WHEN pg_column_size(args) < 1000 THEN args
               WHEN pg_column_size(args) <= $5 AND octet_length(args::text) <= $5 THEN args END AS args,
          meta, tags, errors
