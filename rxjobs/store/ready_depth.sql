-- How many jobs of queue $1 whose type is in $2, whose tags contain all of $3 and whose arguments contain $4 (JSON) are ready, counted up
-- to $5, and for how many seconds the oldest of those has been.
WITH ready AS (
    SELECT scheduled_at
    FROM {schema}.live_jobs
    WHERE state = 'available'
      AND queue = $1
      AND type = ANY ($2::text[])
      AND ($3::text[] = '{}' OR COALESCE(tags, '{}') @> $3)
      AND ($4::text = '{}' OR {schema}.contains(args, $4::text::jsonb))
    ORDER BY priority, scheduled_at, id  -- as the index has it: what is counted is not sorted, and is what would be claimed next
    LIMIT $5
)
SELECT count(*) AS jobs, extract(epoch FROM now() - min(scheduled_at))::float8 AS oldest
FROM ready
