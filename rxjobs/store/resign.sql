-- Stop leading, if node $1 does.
UPDATE {schema}.leaders
SET expires_at = now()
WHERE node = $1 AND expires_at > now()
