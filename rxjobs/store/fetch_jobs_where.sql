-- As fetch_jobs, of those jobs only whose tags contain all of $5 and whose arguments contain $6 (JSON); the limit is $7.
-- Of priority 0, 1, … only those from a mark on ($8 instants, $9 ids): each is one more look into the index, where fewer were ready.
UPDATE {schema}.live_jobs
SET state = 'executing', attempt = attempt + 1, attempted_at = now(), node = $4
WHERE ctid = ANY (ARRAY(
    SELECT ready.ctid
    FROM unnest($8::timestamptz[], $9::bigint[]) WITH ORDINALITY AS mark (scheduled_at, id, place)
    CROSS JOIN LATERAL (
        SELECT job.ctid
        FROM {schema}.live_jobs AS job
        WHERE state = 'available'
          AND queue = $1
          AND priority = mark.place - 1
          AND (job.scheduled_at, job.id) >= (mark.scheduled_at, mark.id)
          AND type = ANY ($3::text[])
          AND EXISTS (
              SELECT FROM {schema}.nodes AS claiming
              WHERE claiming.id = $4 AND expires_at > now()
                AND NOT EXISTS (
                    SELECT FROM {schema}.queues
                    WHERE queue = $1 AND node IN ('', claiming.label, claiming.id::text) AND (paused_at IS NOT NULL OR pace IS NOT NULL)
                )
          )
          AND COALESCE(tags, '{}') @> $5::text[]
          AND ($6::text = '{}' OR {schema}.contains(args, $6::text::jsonb))
        ORDER BY job.scheduled_at, job.id
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS ready
    LIMIT $2
))
RETURNING id, type, priority, attempt, max_attempts, date_part('epoch', inserted_at) AS inserted_at,
          date_part('epoch', scheduled_at) AS scheduled_at, date_part('epoch', attempted_at) AS attempted_at,
          CASE WHEN pg_column_size(args) < 1000 THEN args
               WHEN pg_column_size(args) <= $7 AND octet_length(args::text) <= $7 THEN args END AS args,
          meta, tags, errors
