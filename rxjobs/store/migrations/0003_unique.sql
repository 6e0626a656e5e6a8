-- Unique jobs: at most one of a key is in any of its states. The index is what holds that, whoever inserts or changes a row.

ALTER TABLE {schema}.live_jobs
    ADD COLUMN unique_key text,
    ADD COLUMN unique_states {schema}.job_state[];

ALTER TABLE {schema}.finished_jobs
    ADD COLUMN unique_key text,
    ADD COLUMN unique_states {schema}.job_state[];

CREATE UNIQUE INDEX live_jobs_unique ON {schema}.live_jobs (unique_key)
    WHERE unique_key IS NOT NULL AND state = ANY (unique_states);

CREATE INDEX finished_jobs_unique ON {schema}.finished_jobs (unique_key)
    WHERE unique_key IS NOT NULL AND state = ANY (unique_states);
