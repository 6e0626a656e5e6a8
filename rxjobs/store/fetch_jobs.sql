-- Claim up to $2 jobs of queue $1 whose type is in $3 for node $4, the most urgent first. Returned in any order.
-- By ctid, since joining the picked ids back makes the planner choose a hash join over the whole table.
-- A node whose lease has run out claims nothing: its jobs could be taken from it at once.
UPDATE {schema}.live_jobs
SET state = 'executing', attempt = attempt + 1, attempted_at = now(), node = $4
WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM {schema}.live_jobs
    WHERE state = 'available'
      AND queue = $1
      AND type = ANY ($3::text[])
      AND EXISTS (SELECT FROM {schema}.nodes WHERE id = $4 AND expires_at > now())
    ORDER BY priority, scheduled_at, id
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))
RETURNING id, type, priority, attempt, max_attempts, scheduled_at, attempted_at, args, meta, tags, errors
