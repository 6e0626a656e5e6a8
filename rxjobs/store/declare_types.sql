-- Have it known what jobs of these types get unless something else is said: $1 names, $2 queues, $3 priorities, $4 max_attempts,
-- $5 tags (array literals), $6 meta (JSON). What is known so already is not written anew.
INSERT INTO {schema}.job_types AS known (name, queue, priority, max_attempts, tags, meta)
SELECT name, queue, priority, max_attempts, tags::text[], meta::jsonb
FROM unnest($1::text[], $2::text[], $3::text[]::smallint[], $4::text[]::integer[], $5::text[], $6::text[])
     AS given (name, queue, priority, max_attempts, tags, meta)
ORDER BY name
ON CONFLICT (name) DO UPDATE
SET queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts, tags = excluded.tags,
    meta = excluded.meta, updated_at = now()
WHERE (known.queue, known.priority, known.max_attempts, known.tags, known.meta)
      <> (excluded.queue, excluded.priority, excluded.max_attempts, excluded.tags, excluded.meta)
