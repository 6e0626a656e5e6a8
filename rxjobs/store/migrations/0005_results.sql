-- How far a job says that it has come, and when somebody asked for one that runs to be cancelled.

ALTER TABLE {schema}.live_jobs
    ADD COLUMN progress jsonb,
    ADD COLUMN cancel_at timestamptz;

ALTER TABLE {schema}.finished_jobs ADD COLUMN progress jsonb;

-- nearly always empty: what a node asks it again and again costs next to nothing
CREATE INDEX live_jobs_to_cancel ON {schema}.live_jobs (node) WHERE cancel_at IS NOT NULL;

CREATE OR REPLACE VIEW {schema}.jobs AS
    SELECT id, type, queue, state::text AS state, args, attempt, max_attempts, priority, inserted_at, scheduled_at, attempted_at,
           NULL::timestamptz AS finished_at, COALESCE(errors, '[]') AS errors, NULL::jsonb AS forensics, NULL::json AS result,
           progress, COALESCE(meta, '{}') AS meta, COALESCE(tags, '{}') AS tags, node
    FROM {schema}.live_jobs
    UNION ALL
    SELECT id, type, queue, state::text, args, attempt, max_attempts, priority, inserted_at, scheduled_at, attempted_at,
           finished_at, COALESCE(errors, '[]'), forensics, result,
           progress, COALESCE(meta, '{}'), COALESCE(tags, '{}'), node
    FROM {schema}.finished_jobs;
