-- Keep node $1 alive for $2 seconds from now, with what it tells of itself ($3, JSON; NULL for nothing new). Returns its end, or nothing
-- where the lease was taken away: a late renewal is in time as long as nobody has begun to take the node's jobs.
UPDATE {schema}.nodes
SET expires_at = now() + $2::float8 * interval '1 second', status = COALESCE($3::text::jsonb, status)
WHERE id = $1 AND expires_at > '-infinity'
RETURNING expires_at
