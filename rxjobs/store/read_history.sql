-- The partitions of the history, the oldest first: name, kind, borders, about how many jobs are in it, and bytes with its indexes; and
-- by which period it is partitioned, and how many days ahead it has tables. Returns nothing where it is not partitioned.
SELECT parts.name, parts.kind, parts.lower, parts.upper, {schema}.count_part(parts.part) AS jobs,
       pg_total_relation_size(parts.part) AS bytes, history.every,
       extract(epoch FROM (max(parts.upper) OVER ()) - now())::float8 / 86400 AS days_ahead
FROM {schema}.history, {schema}.history_parts() AS parts
ORDER BY parts.kind <> 'before', parts.upper, parts.kind
