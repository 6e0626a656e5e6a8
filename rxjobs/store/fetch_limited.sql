-- As fetch_jobs_where, of a limited queue: as far as its limits allow, which see claim_limited. With keys, the marks are of no use.
SELECT id, type, priority, attempt, max_attempts, inserted_at, scheduled_at, attempted_at,
       CASE WHEN pg_column_size(args) < 1000 THEN args
            WHEN pg_column_size(args) <= $7 AND octet_length(args::text) <= $7 THEN args END AS args,
       meta, tags, errors
FROM {schema}.claim_limited($1, $2, $3::text[], $4, $5::text[], $6, $8::timestamptz[], $9::bigint[])
