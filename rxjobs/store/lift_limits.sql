-- Have queue $1 be without limits, and say so on channel $2 (NULL: nowhere).
WITH controlled AS (
    UPDATE {schema}.queues
    SET pace = NULL, updated_at = now()
    WHERE queue = $1 AND node = ''
), forgotten AS (
    DELETE FROM {schema}.limits WHERE queue = $1
), of_keys AS (
    DELETE FROM {schema}.limit_keys WHERE queue = $1
)
SELECT pg_notify($2, '!')
WHERE $2 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
