-- Enter as dead the nodes that jobs are claimed by and that are not known, while node $1 leads in term $2. Returns them.
-- A claim that was on its way when its node left, or was removed, is committed after that. Reads the whole table: to be asked seldom.
INSERT INTO {schema}.nodes (id, label, pid, expires_at)
SELECT DISTINCT node, '', 0, '-infinity'::timestamptz
FROM {schema}.live_jobs AS job
WHERE state = 'executing'
  AND node IS NOT NULL
  AND NOT EXISTS (SELECT FROM {schema}.nodes WHERE id = job.node)
  AND EXISTS (SELECT FROM {schema}.leaders WHERE node = $1 AND term = $2 AND expires_at > now())
ON CONFLICT (id) DO NOTHING
RETURNING id
