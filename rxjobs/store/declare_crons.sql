-- Have node $1 declare entries: $2 names, $3 expressions, $4 time zones, $5 what becomes of missed slots, $6 jobs (JSON). One that is
-- new, or comes at other times than before, begins now. Entries of these names that were made at run time stay as they are.
-- $7 channel to notify where one begins or was not declared by this node before, or NULL.
WITH declaring AS (
    UPDATE {schema}.nodes SET crons = $2::text[] WHERE id = $1 AND crons <> $2::text[] RETURNING id
), declared AS (
    INSERT INTO {schema}.cron_entries AS entry (name, expression, tz, missed, job, is_declared)
    SELECT name, expression, tz, missed, job::json, true
    FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) AS given (name, expression, tz, missed, job)
    ORDER BY name
    ON CONFLICT (name) DO UPDATE
    SET expression = excluded.expression, tz = excluded.tz, missed = excluded.missed, job = excluded.job, updated_at = now(),
        done_until = CASE WHEN (entry.expression, entry.tz) = (excluded.expression, excluded.tz) THEN entry.done_until ELSE now() END
    WHERE entry.is_declared
    RETURNING done_until = now() AS begins
)
SELECT pg_notify($7, '!')
WHERE $7 IS NOT NULL AND (EXISTS (SELECT FROM declaring) OR EXISTS (SELECT FROM declared WHERE begins))
  AND (SELECT pg_notification_queue_usage()) < 0.5
