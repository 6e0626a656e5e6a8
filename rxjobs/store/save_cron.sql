-- Enter or change the entry $1 at run time: $2 expression, $3 time zone, $4 what becomes of missed slots, $5 job (JSON). Where it comes at
-- other times than before it begins now. $6 channel to notify, or NULL. Returns whether it is new.
INSERT INTO {schema}.cron_entries AS entry (name, expression, tz, missed, job, is_declared)
VALUES ($1, $2, $3, $4, $5::text::json, false)
ON CONFLICT (name) DO UPDATE
SET expression = excluded.expression, tz = excluded.tz, missed = excluded.missed, job = excluded.job, updated_at = now(),
    done_until = CASE WHEN (entry.expression, entry.tz) = (excluded.expression, excluded.tz) THEN entry.done_until ELSE now() END
RETURNING xmax = 0 AS is_new, (
    SELECT pg_notify($6, '!') WHERE $6 IS NOT NULL AND pg_notification_queue_usage() < 0.5
) AS woken
