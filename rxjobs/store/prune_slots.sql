-- Forget slots that were made longer ago than $1 (s), which no leader asks for any more, and declared entries that no living node has
-- declared for as long, while node $2 leads in term $3.
WITH leads AS MATERIALIZED (
    SELECT FROM {schema}.leaders WHERE node = $2 AND term = $3 AND expires_at > now()
), forgotten AS (
    DELETE FROM {schema}.cron_entries AS entry
    WHERE is_declared AND updated_at < now() - $1 * interval '1 second' AND EXISTS (SELECT FROM leads)
      AND done_until < now() - $1 * interval '1 second'
      AND NOT EXISTS (SELECT FROM {schema}.nodes WHERE entry.name = ANY (crons))
)
DELETE FROM {schema}.cron_slots
WHERE slot < now() - $1 * interval '1 second' AND EXISTS (SELECT FROM leads)
