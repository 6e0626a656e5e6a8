-- What keeps vacuum from removing this database's dead rows, the oldest first: sessions, standbys, replication slots and prepared
-- transactions, with the transaction id that each holds on to, and for how many seconds it may have (NULL where it is not shown).
-- Neither other databases' transactions, nor vacuum itself, nor a slot's catalog_xmin hold back a table of ours.
SELECT kind, name, username, application, state, held::text AS held, age, now() AS now
FROM (
    SELECT CASE WHEN backend_type = 'walsender' THEN 'standby' ELSE 'session' END AS kind,
           pid::text AS name, usename::text AS username, application_name AS application, state,
           CASE WHEN age(backend_xid) > age(backend_xmin) THEN backend_xid ELSE COALESCE(backend_xmin, backend_xid) END AS held,
           extract(epoch FROM now() - xact_start)::float8 AS age
    FROM pg_stat_activity
    WHERE (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)
      AND (datname = current_database() OR datname IS NULL)
      AND pid <> pg_backend_pid()
      AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
    UNION ALL
    SELECT 'slot', slot_name::text, NULL, NULL, CASE WHEN active THEN 'in use' ELSE 'not in use' END, xmin, NULL
    FROM pg_replication_slots
    WHERE xmin IS NOT NULL
    UNION ALL
    SELECT 'prepared', gid, owner::text, NULL, NULL, transaction, extract(epoch FROM now() - prepared)::float8
    FROM pg_prepared_xacts
    WHERE database = current_database()
) AS holder
ORDER BY age(held) DESC
LIMIT 100
