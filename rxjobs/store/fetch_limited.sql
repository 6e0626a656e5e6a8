-- As fetch_jobs_where, of a limited queue: as far as its limits allow, which see claim_limited. With keys, the marks are of no use.
SELECT id, type, priority, attempt, max_attempts, date_part('epoch', inserted_at) AS inserted_at,
       date_part('epoch', scheduled_at) AS scheduled_at, date_part('epoch', attempted_at) AS attempted_at,
       CASE WHEN pg_column_size(args) < 1000 THEN args
            WHEN pg_column_size(args) <= $7 AND octet_length(args::text) <= $7 THEN args END AS args,
       meta, tags, errors
FROM {schema}.claim_limited($1, $2, $3::text[], $4, $5::text[], $6, $8::timestamptz[], $9::bigint[])
