-- Of the $7 jobs above id $5, in order, the ids of up to $6: of the states $1, queues $2 and types $3, and with the tags $4 (each NULL for
-- any). Returns also up to which id that was looked, NULL where there is none above. So many are read, however few are meant: a
-- statement that looked until it has found some would read a large table to its end.
WITH above AS MATERIALIZED (
    SELECT id, state, queue, type, tags
    FROM {schema}.jobs
    WHERE id > $5
    ORDER BY id
    LIMIT $7
), found AS MATERIALIZED (
    SELECT id
    FROM above
    WHERE ($1::text[] IS NULL OR state = ANY ($1))
      AND ($2::text[] IS NULL OR queue = ANY ($2))
      AND ($3::text[] IS NULL OR type = ANY ($3))
      AND ($4::text[] IS NULL OR tags @> $4)
    ORDER BY id
    LIMIT $6
)
SELECT ARRAY(SELECT id FROM found ORDER BY id) AS ids,
       CASE WHEN (SELECT count(*) FROM found) = $6 THEN (SELECT max(id) FROM found) ELSE (SELECT max(id) FROM above) END AS above
