-- Keep node $1 alive for $2 seconds from now. Returns its end, or nothing where the lease was taken away: a late renewal is in time
-- as long as nobody has begun to take the node's jobs.
UPDATE {schema}.nodes
SET expires_at = now() + $2::float8 * interval '1 second'
WHERE id = $1 AND expires_at > '-infinity'
RETURNING expires_at
