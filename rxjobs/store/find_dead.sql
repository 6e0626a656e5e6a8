-- The ids of up to $7 dead letters above id $6, in order: of the queues $1 and types $2, with the tags $3, whose last error is of one of the
-- types $4, by its whole name or the last part of it, and that were discarded at $5 or later (each NULL for any).
SELECT id
FROM {schema}.finished_jobs
WHERE state = 'discarded'
  AND ($1::text[] IS NULL OR queue = ANY ($1))
  AND ($2::text[] IS NULL OR type = ANY ($2))
  AND ($3::text[] IS NULL OR tags @> $3)
  AND ($4::text[] IS NULL OR errors -> -1 ->> 'type' = ANY ($4) OR substring(errors -> -1 ->> 'type' FROM '[^.]*$') = ANY ($4))
  AND ($5::timestamptz IS NULL OR finished_at >= $5)
  AND id > $6
ORDER BY id
LIMIT $7
