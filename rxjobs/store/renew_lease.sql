-- Keep node $1 alive for $2 seconds from now. Returns its end, or nothing where the lease was taken away.
UPDATE {schema}.nodes
SET expires_at = now() + $2::float8 * interval '1 second'
WHERE id = $1
RETURNING expires_at
