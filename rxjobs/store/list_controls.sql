-- What is asked of queues at run time, and whether a living node goes by the name that a row has.
SELECT queue, node, paused_at, max_demand,
       node = '' OR EXISTS (
           SELECT
           FROM {schema}.nodes
           WHERE node IN (label, id::text) AND expires_at > now()
       ) AS is_living
FROM {schema}.queues
WHERE paused_at IS NOT NULL OR max_demand IS NOT NULL
ORDER BY queue, node
