-- Have queue $1 go on for the nodes that go by the name $2, or ('') for all and each that was paused by itself, and say so on channel
-- $3 (NULL: nowhere). Returns whether anything was paused.
WITH changed AS (
    UPDATE {schema}.queues
    SET paused_at = NULL, updated_at = now()
    WHERE queue = $1 AND paused_at IS NOT NULL AND ($2 = '' OR node = $2)
    RETURNING queue
), told AS (
    SELECT pg_notify($3, '!')
    FROM (SELECT DISTINCT queue FROM changed) AS queues
    WHERE $3 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT EXISTS (SELECT FROM changed) AS is_changed, (SELECT count(*) FROM told) AS told
