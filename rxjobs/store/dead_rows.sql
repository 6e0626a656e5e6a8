-- The rows of the live jobs' table as its statistics have them, living and dead, and for how many seconds no vacuum has cleared it
-- (NULL where none ever did).
SELECT n_live_tup AS living, n_dead_tup AS dead,
       extract(epoch FROM now() - greatest(last_vacuum, last_autovacuum))::float8 AS uncleared
FROM pg_stat_user_tables
WHERE relid = '{schema}.live_jobs'::regclass
