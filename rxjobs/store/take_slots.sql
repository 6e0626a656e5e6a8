-- Take the slots $3 of entry $1, whose slots up to $2 were dealt with, and be done until $4, while node $5 leads in term $6. Returns
-- those that nobody has taken: to be made into jobs in the same transaction.
WITH moved AS (
    UPDATE {schema}.cron_entries
    SET done_until = $4
    WHERE name = $1 AND done_until = $2 AND paused_at IS NULL
      AND EXISTS (SELECT FROM {schema}.leaders WHERE node = $5 AND term = $6 AND expires_at > now())
    RETURNING name
)
INSERT INTO {schema}.cron_slots (entry, slot)
SELECT name, slot
FROM moved, unnest($3::timestamptz[]) AS given (slot)
ON CONFLICT DO NOTHING
RETURNING slot
