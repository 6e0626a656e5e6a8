-- Remove node $1, whose lease has run out, unless jobs are still claimed by it. It is known for a day who it was.
WITH gone AS (
    DELETE FROM {schema}.nodes
    WHERE id = $1 AND expires_at < now() AND NOT EXISTS (SELECT FROM {schema}.live_jobs WHERE node = $1 AND state = 'executing')
    RETURNING *
), forgotten AS (
    DELETE FROM {schema}.gone_nodes
    WHERE gone_at < now() - interval '1 day' AND id <> $1
)
INSERT INTO {schema}.gone_nodes (id, label, pid, started_at, is_lost, serves, status)
SELECT id, label, pid, started_at, true, serves, status
FROM gone
ON CONFLICT (id) DO UPDATE SET gone_at = excluded.gone_at, is_lost = true, serves = excluded.serves, status = excluded.status
