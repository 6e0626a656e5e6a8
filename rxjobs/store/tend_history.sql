-- Do the next thing that a partitioned history needs, while node $1 leads in term $2: jobs are kept $3 seconds, dead letters $4.
-- Returns what was done to which table, and how many jobs went with it of which state; nothing where nothing is to be done.
SELECT done, name, state, jobs
FROM {schema}.tend_history($1::uuid, $2::bigint, $3::float8, $4::float8)
