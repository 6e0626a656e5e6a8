-- Whether a job of queue $1 whose type is in $2, whose tags contain all of $3 and whose arguments contain $4 (JSON) has been ready for
-- more than $5 seconds.
SELECT EXISTS (
    SELECT
    FROM {schema}.live_jobs
    WHERE state = 'available'
      AND queue = $1
      AND scheduled_at < now() - $5::float8 * interval '1 second'
      AND type = ANY ($2::text[])
      AND ($3::text[] = '{}' OR COALESCE(tags, '{}') @> $3)
      AND ($4::text = '{}' OR {schema}.contains(args, $4::text::jsonb))
) AS has_waited
