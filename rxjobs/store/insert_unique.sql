-- As insert_jobs, of jobs some of which are unique: $11 their keys (NULL for none), $12 periods (s), $13 states (array literals).
-- A period is a part of the key, as a number of periods since 1970: so the index holds it. Who was inserted in the one before, not a
-- whole period ago, is looked for. Returns the ids and states of those that were inserted, with their places, from 1.
-- In the order of their keys, so that two who insert the same ones never wait for each other in a circle.
WITH given AS MATERIALIZED (
    SELECT nextval('{schema}.live_jobs_id_seq') AS id, new.*, due,
           CASE WHEN period IS NULL THEN key ELSE key || ':' || floor(extract(epoch FROM now()) / period) END AS unique_key,
           CASE WHEN period IS NOT NULL THEN key || ':' || floor(extract(epoch FROM now()) / period) - 1 END AS key_before
    FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::integer[], $6::text[], $7::text[], $8::float8[],
                $9::timestamptz[], $11::text[], $12::float8[], $13::text[])
         WITH ORDINALITY AS new (type, queue, args, priority, max_attempts, tags, meta, delay, instant, key, period, states, place),
         LATERAL (SELECT COALESCE(instant, now() + delay * interval '1 second')) AS at (due)
), made AS (
    INSERT INTO {schema}.live_jobs (id, type, queue, args, priority, max_attempts, tags, meta, scheduled_at, state,
                                    unique_key, unique_states)
    SELECT id, type, queue, args::json, priority, max_attempts, tags::text[], meta::jsonb, due,
           (CASE WHEN due <= now() THEN 'available' ELSE 'scheduled' END)::{schema}.job_state, unique_key,
           states::{schema}.job_state[]
    FROM given
    WHERE key_before IS NULL
       OR NOT EXISTS (SELECT FROM {schema}.live_jobs AS job
                      WHERE job.unique_key = key_before AND job.state = ANY (job.unique_states)
                        AND job.inserted_at > now() - period * interval '1 second')
    ORDER BY unique_key, id
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND state = ANY (unique_states) DO NOTHING
    RETURNING id, state::text AS state, queue
), woken AS (
    SELECT pg_notify($10, queue)
    FROM (SELECT DISTINCT queue FROM made WHERE state = 'available') AS queues
    WHERE $10 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT id, made.state, place
FROM made JOIN given USING (id), (SELECT count(*) FROM woken) AS all_woken
