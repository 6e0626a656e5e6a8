-- The nodes whose lease ran out, given that the server has been up for at least $1 seconds, a whole lease: before that nobody could renew.
SELECT id, label
FROM {schema}.nodes
WHERE expires_at < now() AND pg_postmaster_start_time() < now() - $1::float8 * interval '1 second'
