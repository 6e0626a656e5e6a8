-- As fetch_limited, of a queue that is limited by keys ({queue} is the MD5 of its name), which then need not be asked for the name of its
-- function: $1 jobs, $2 types, $3 the node, $4 tags, $5 arguments (JSON), $6 bytes of arguments.
SELECT id, type, priority, attempt, max_attempts, date_part('epoch', inserted_at) AS inserted_at,
       date_part('epoch', scheduled_at) AS scheduled_at, date_part('epoch', attempted_at) AS attempted_at,
       CASE WHEN pg_column_size(args) < 1000 THEN args
            WHEN pg_column_size(args) <= $6 AND octet_length(args::text) <= $6 THEN args END AS args,
       meta, tags, errors
FROM {schema}."claim_of_{queue}"($1, $2::text[], $3, $4::text[], $5)
