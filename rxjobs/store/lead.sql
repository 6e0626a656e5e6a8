-- Lead, or go on leading: node $1 for $2 seconds from now. Returns the term, which is new with every change of leader, or nothing
-- while another leads. A leader that was away for longer than that begins a new term too: others may have led meanwhile.
-- Where nobody has led for longer than a change of leaders takes, nodes may have lived and not been able to renew: see expired_nodes.
INSERT INTO {schema}.leaders AS leader (role, node, term, expires_at)
VALUES ('maintenance', $1, 1, now() + $2::float8 * interval '1 second')
ON CONFLICT (role) DO UPDATE
SET node = excluded.node,
    term = leader.term + CASE WHEN leader.node = excluded.node AND leader.expires_at > now() THEN 0 ELSE 1 END,
    expires_at = excluded.expires_at,
    since = CASE WHEN leader.expires_at < now() - $2::float8 * interval '0.5 second' THEN now() ELSE leader.since END
WHERE leader.node = excluded.node OR leader.expires_at < now()
RETURNING term
