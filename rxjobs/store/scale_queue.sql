-- Have nodes hold at most $3 jobs of queue $1 in each of their pulls, or (NULL) as many as is declared: those that go by the name $2,
-- or ('') all, and then also those that were told another number by themselves. Say so on channel $4 (NULL: nowhere).
-- Returns whether that is new.
WITH forgotten AS (
    UPDATE {schema}.queues
    SET max_demand = NULL, updated_at = now()
    WHERE queue = $1 AND $2 = '' AND node <> '' AND max_demand IS NOT NULL
    RETURNING queue
), changed AS (
    INSERT INTO {schema}.queues AS before (queue, node, max_demand)
    SELECT $1, $2, $3::integer
    WHERE $3::integer IS NOT NULL OR EXISTS (SELECT FROM {schema}.queues WHERE queue = $1 AND node = $2)
    ON CONFLICT (queue, node) DO UPDATE
    SET max_demand = excluded.max_demand, updated_at = excluded.updated_at
    WHERE before.max_demand IS DISTINCT FROM excluded.max_demand
    RETURNING max_demand
), told AS (
    SELECT pg_notify($4, '!')
    WHERE $4 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5 AND (EXISTS (SELECT FROM changed) OR EXISTS (SELECT FROM forgotten))
)
SELECT EXISTS (SELECT FROM changed) OR EXISTS (SELECT FROM forgotten) AS is_changed, (SELECT count(*) FROM told) AS told
