-- The living nodes: what they go by, and the queues that they take jobs from.
SELECT id::text AS id, label, ARRAY(SELECT jsonb_object_keys(serves)) AS queues
FROM {schema}.nodes
WHERE expires_at > now()
ORDER BY label, id
