-- Wake the queues $2: $1 channel.
SELECT pg_notify($1, queue)
FROM unnest($2::text[]) AS queues (queue)
WHERE (SELECT pg_notification_queue_usage()) < 0.5  -- a full one would fail the transaction
