-- The ids of up to $6 jobs above id $5, in order: of the states $1, queues $2 and types $3, and with the tags $4 (each NULL for any).
SELECT id
FROM {schema}.jobs
WHERE ($1::text[] IS NULL OR state = ANY ($1))
  AND ($2::text[] IS NULL OR queue = ANY ($2))
  AND ($3::text[] IS NULL OR type = ANY ($3))
  AND ($4::text[] IS NULL OR tags @> $4)
  AND id > $5
ORDER BY id
LIMIT $6
