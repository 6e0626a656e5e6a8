-- Open the breaker of job type $1 until it is closed by hand, and say so on channel $2 (NULL: nowhere).
-- Returns whether it was not so before.
WITH changed AS (
    INSERT INTO {schema}.breakers AS b (type, version, state, is_by_hand, opened_at)
    VALUES ($1, 1, 'open', true, now())
    ON CONFLICT (type) DO UPDATE
    SET version = b.version + 1, state = 'open', is_by_hand = true, opened_at = now(), moved_at = now(), failures = 0, successes = 0,
        calls = 0, failed = 0, calls_before = 0, failed_before = 0
    WHERE NOT (b.state = 'open' AND b.is_by_hand)
    RETURNING type
), told AS (
    SELECT pg_notify($2, '!')
    FROM changed
    WHERE $2 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT EXISTS (SELECT FROM changed) AS is_changed, (SELECT count(*) FROM told) AS told
