-- The limits of queues: of $1, or (NULL) of all.
SELECT queue, path, concurrency, rate, per, burst, key_concurrency, key_rate, key_per, key_burst, weights::text AS weights, is_shared
FROM {schema}.limits
WHERE queue = $1 OR $1 IS NULL
ORDER BY queue
