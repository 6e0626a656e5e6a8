-- The entries: name, expression, tz, missed, job, is_declared, paused_at, done_until, whether they are due at their times now, and
-- this server's time. One that is declared in code is as long as a living node declares it.
SELECT name, expression, tz, missed, job::text AS job, is_declared, paused_at, done_until, now() AS now,
       paused_at IS NULL
           AND (NOT is_declared OR EXISTS (SELECT FROM {schema}.nodes WHERE entry.name = ANY (crons) AND expires_at > now())) AS is_on
FROM {schema}.cron_entries AS entry
ORDER BY name
