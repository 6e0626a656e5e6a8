-- What is asked of the queues $1 for a node that goes by the names $2, the empty one among them; its own max_demand goes before that
-- of all nodes.
SELECT queue,
       bool_or(paused_at IS NOT NULL) AS is_paused,
       (array_agg(max_demand ORDER BY node DESC) FILTER (WHERE max_demand IS NOT NULL))[1] AS max_demand
FROM {schema}.queues
WHERE queue = ANY ($1::text[]) AND node = ANY ($2::text[])
GROUP BY queue
