-- Remove the entry $1. Returns whether a living node declares it in code, and so enters it again when it starts.
DELETE FROM {schema}.cron_entries AS entry
WHERE name = $1
RETURNING EXISTS (SELECT FROM {schema}.nodes WHERE entry.name = ANY (crons) AND expires_at > now()) AS is_declared
