-- Enter node $1 with label $2 and process id $3 for $4 seconds.
INSERT INTO {schema}.nodes (id, label, pid, expires_at)
VALUES ($1, $2, $3, now() + $4::float8 * interval '1 second')
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at
