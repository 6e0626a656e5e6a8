-- Have it known that node $1 takes these jobs: $2 queues, each with its job types (JSON). A row that says so already is not written anew.
UPDATE {schema}.nodes
SET serves = $2::text::jsonb
WHERE id = $1 AND serves <> $2::text::jsonb
