-- Give up the lease of node $1, unless jobs are still claimed by it: those are freed when it runs out. It is known for a day who it was,
-- with what it tells of itself at last ($2, JSON, or NULL).
WITH gone AS (
    DELETE FROM {schema}.nodes
    WHERE id = $1 AND NOT EXISTS (SELECT FROM {schema}.live_jobs WHERE node = $1 AND state = 'executing')
    RETURNING *
), forgotten AS (
    DELETE FROM {schema}.gone_nodes
    WHERE gone_at < now() - interval '1 day' AND id <> $1
)
INSERT INTO {schema}.gone_nodes (id, label, pid, started_at, is_lost, serves, status)
SELECT id, label, pid, started_at, false, serves, COALESCE($2::text::jsonb, status)
FROM gone
ON CONFLICT (id) DO UPDATE SET gone_at = excluded.gone_at, is_lost = false, serves = excluded.serves, status = excluded.status
