-- The server behind this session: its version, what it does before it says that something is written, its clock, and which part of the
-- room for notifications is taken (0 to 1).
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::integer / 10000 AS major,
       current_setting('fsync')::boolean AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('transaction_read_only')::boolean AS is_read_only,
       clock_timestamp() AS now,
       pg_notification_queue_usage() AS notifications
