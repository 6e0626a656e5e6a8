-- The node that leads, and its term, or nothing for both; and for how many seconds none has though a node lives (NULL where none does).
SELECT leader.node::text AS node, leader.term,
       extract(epoch FROM now() - greatest(
           (SELECT min(started_at) FROM {schema}.nodes WHERE expires_at > now()),
           (SELECT max(expires_at) FROM {schema}.leaders WHERE role = 'maintenance')
       ))::float8 AS unled
FROM (VALUES ('maintenance')) AS wanted (role)
LEFT JOIN {schema}.leaders AS leader ON leader.role = wanted.role AND leader.expires_at > now()
