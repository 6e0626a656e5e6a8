-- The nodes whose lease ran out, given that for at least $1 seconds, a whole lease, they could have renewed it: that this server has been
-- up for so long, and that there has been a leader on it for so long. A standby that takes over has been up all the time.
-- One that nobody knows, which was entered since jobs are claimed by it, has the pid 0 (orphans.sql).
-- A server that recovers from a crash of one of its processes keeps its start, and loses its statistics: they begin when it is back.
SELECT id, label, pid = 0 AS is_unknown
FROM {schema}.nodes
WHERE expires_at < now()
  AND greatest(pg_postmaster_start_time(), (SELECT stats_reset FROM pg_stat_bgwriter)) < now() - $1::float8 * interval '1 second'
  AND NOT EXISTS (SELECT FROM {schema}.leaders WHERE since > now() - $1::float8 * interval '1 second')
