-- Pause queue $1 for the nodes that go by the name $2, or for all ('') and say so on channel $3 (NULL: nowhere).
-- Returns whether it was not paused so before.
WITH changed AS (
    INSERT INTO {schema}.queues AS asked (queue, node, paused_at)
    VALUES ($1, $2, now())
    ON CONFLICT (queue, node) DO UPDATE
    SET paused_at = excluded.paused_at, updated_at = excluded.updated_at
    WHERE asked.paused_at IS NULL
    RETURNING queue
), told AS (
    SELECT pg_notify($3, '!')
    FROM changed
    WHERE $3 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT EXISTS (SELECT FROM changed) AS is_changed, (SELECT count(*) FROM told) AS told
