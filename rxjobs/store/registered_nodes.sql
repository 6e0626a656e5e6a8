-- The nodes that are there, and up to 1000 of those that went within the last $1 seconds, the last to go first.
SELECT id, label, pid, started_at, CASE WHEN expires_at > now() THEN 'living' ELSE 'expired' END AS state,
       CASE WHEN expires_at > now() THEN extract(epoch FROM expires_at - now())::float8 END AS lease, NULL::timestamptz AS gone_at,
       EXISTS (SELECT FROM {schema}.leaders WHERE node = one.id AND expires_at > now()) AS is_leading, serves, status
FROM {schema}.nodes AS one
UNION ALL
(SELECT id, label, pid, started_at, CASE WHEN is_lost THEN 'lost' ELSE 'left' END, NULL, gone_at, false, serves, status
 FROM {schema}.gone_nodes AS gone
 WHERE gone_at > now() - $1::float8 * interval '1 second' AND NOT EXISTS (SELECT FROM {schema}.nodes WHERE id = gone.id)
 ORDER BY gone_at DESC
 LIMIT 1000)
