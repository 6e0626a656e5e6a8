-- The nodes whose lease ran out, given that the server has been up for at least $1 seconds, a whole lease: before that nobody could renew.
-- A server that recovers from a crash of one of its processes keeps its start, and loses its statistics: they begin when it is back.
SELECT id, label
FROM {schema}.nodes
WHERE expires_at < now()
  AND greatest(pg_postmaster_start_time(), (SELECT stats_reset FROM pg_stat_bgwriter)) < now() - $1::float8 * interval '1 second'
