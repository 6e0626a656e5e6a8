-- Remove node $1, whose lease has run out, unless jobs are still claimed by it.
DELETE FROM {schema}.nodes
WHERE id = $1 AND expires_at < now() AND NOT EXISTS (SELECT FROM {schema}.live_jobs WHERE node = $1 AND state = 'executing')
