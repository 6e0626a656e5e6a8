-- For schemas that the first step made while it was still being written. Where it ran as it stands now, nothing changes.

ALTER TABLE {schema}.live_jobs SET (fillfactor = 70);
ALTER INDEX {schema}.finished_jobs_finished_at SET (autosummarize = on);
ALTER TABLE {schema}.nodes ADD COLUMN IF NOT EXISTS serves jsonb NOT NULL DEFAULT '{}';

DO $$
BEGIN
    ALTER TABLE {schema}.live_jobs ADD CONSTRAINT live_jobs_scheduled_at_check
        CHECK (scheduled_at BETWEEN '1900-01-01 00:00+00' AND '3000-01-01 00:00+00');
EXCEPTION
    WHEN duplicate_object THEN NULL;
END
$$;

CREATE TABLE IF NOT EXISTS {schema}.leaders (
    role text PRIMARY KEY,
    node uuid NOT NULL,
    term bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    since timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);

ALTER TABLE {schema}.leaders ADD COLUMN IF NOT EXISTS since timestamptz NOT NULL DEFAULT '-infinity';

CREATE TABLE IF NOT EXISTS {schema}.queues (
    queue text NOT NULL,
    node text NOT NULL DEFAULT '',
    paused_at timestamptz,
    max_demand integer CHECK (max_demand > 0),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (queue, node)
);

CREATE OR REPLACE FUNCTION {schema}.contains(args json, wanted jsonb) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN args::jsonb @> wanted;
EXCEPTION
    WHEN data_exception OR program_limit_exceeded OR statement_too_complex THEN
        RETURN false;
END
$$;
