-- Wait for whoever else changes what is asked of queue $1, until this transaction ends: changes for all nodes touch the rows of each.
SELECT pg_advisory_xact_lock(hashtextextended('{schema}.' || $1, 0))
