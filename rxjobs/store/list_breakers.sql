-- The breakers of all job types that have failed: how they stand, since when, for how many seconds more they stay open, and how many
-- probes living nodes have out; and the queue that the type declares, where that is known.
SELECT type, (SELECT queue FROM {schema}.job_types WHERE name = type) AS queue, state, is_by_hand, moved_at, failures,
       CASE
           WHEN state = 'open' AND NOT is_by_hand
           THEN greatest(0, least(reset_timeout, extract(epoch FROM opened_at + reset_timeout * interval '1 second' - now())))::float8
       END AS wait,
       (SELECT count(*) FROM unnest(probing) AS probe (node) JOIN {schema}.nodes ON id = probe.node AND expires_at > now()) AS probing
FROM {schema}.breakers
ORDER BY type
