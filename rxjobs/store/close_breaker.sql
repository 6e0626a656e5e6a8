-- Close the breaker of job type $1, whose failures count from the start again, and say so on channel $2 (NULL: nowhere).
-- Returns whether that changed anything.
WITH changed AS (
    UPDATE {schema}.breakers
    SET version = version + 1, state = 'closed', is_by_hand = false, moved_at = now(), failures = 0, successes = 0,
        calls = 0, failed = 0, calls_before = 0, failed_before = 0
    WHERE type = $1 AND (state <> 'closed' OR failures > 0 OR failed > 0 OR failed_before > 0)
    RETURNING type
), told AS (
    SELECT pg_notify($2, '!')
    FROM changed
    WHERE $2 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT EXISTS (SELECT FROM changed) AS is_changed, (SELECT count(*) FROM told) AS told
