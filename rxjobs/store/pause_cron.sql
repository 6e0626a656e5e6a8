-- Let the slots of entry $1 go by from now on if $2, or make jobs of them again. $3 channel to notify, or NULL. Returns whether that
-- is new; nothing where there is no such entry.
WITH entry AS (
    SELECT name, (paused_at IS NOT NULL) <> $2 AS is_new FROM {schema}.cron_entries WHERE name = $1 FOR UPDATE
), changed AS (
    UPDATE {schema}.cron_entries AS changing
    SET paused_at = CASE WHEN $2 THEN now() END, done_until = now(), updated_at = now()
    FROM entry
    WHERE changing.name = entry.name AND is_new
)
SELECT is_new, (SELECT pg_notify($3, '!') WHERE $3 IS NOT NULL AND pg_notification_queue_usage() < 0.5) AS woken FROM entry
