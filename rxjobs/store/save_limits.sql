-- Limit queue $1: keys are at $2 in the arguments; $3 jobs run at once, $4 start in $5 s, in a bucket of $6; of each key $7, $8, $9, $10;
-- weights $11 (JSON); whether keys share $12. Claims that were given less than they asked for are made again after $13 s.
-- What was taken so far counts on, unless it was counted otherwise. Say so on channel $14 (NULL: nowhere).
WITH controlled AS (
    INSERT INTO {schema}.queues (queue, pace)
    VALUES ($1, $13)
    ON CONFLICT (queue, node) DO UPDATE
    SET pace = excluded.pace, updated_at = excluded.updated_at
), uncounted AS (
    UPDATE {schema}.limit_keys AS used
    SET level = NULL, level_at = NULL
    FROM {schema}.limits AS before
    WHERE used.queue = $1 AND before.queue = $1 AND (before.key_per, before.key_burst) IS DISTINCT FROM ($9::float8, $10::integer)
), told AS (
    SELECT pg_notify($14, '!')
    WHERE $14 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
INSERT INTO {schema}.limits AS before (queue, path, concurrency, rate, per, burst, key_concurrency, key_rate, key_per, key_burst,
                                       weights, is_shared, clock)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text::jsonb, $12, 0 * count(*)
FROM told
ON CONFLICT (queue) DO UPDATE
SET path = excluded.path, concurrency = excluded.concurrency, rate = excluded.rate, per = excluded.per, burst = excluded.burst,
    key_concurrency = excluded.key_concurrency, key_rate = excluded.key_rate, key_per = excluded.key_per,
    key_burst = excluded.key_burst, weights = excluded.weights, is_shared = excluded.is_shared,
    level = CASE WHEN (before.per, before.burst) IS NOT DISTINCT FROM (excluded.per, excluded.burst) THEN before.level END
