-- Stop leading, if node $1 does.
UPDATE {schema}.leaders
SET expires_at = '-infinity'
WHERE node = $1
