-- Entries of cron, and the slots that were made into jobs: the primary key is what lets each slot run once, whoever leads.

CREATE TABLE {schema}.cron_entries (
    name text PRIMARY KEY,
    expression text NOT NULL,
    tz text NOT NULL,
    missed text NOT NULL CHECK (missed IN ('skip', 'once', 'all')),
    job json NOT NULL,  -- what is enqueued, without its time
    is_declared boolean NOT NULL,  -- in code: it is due as long as a living node declares it
    paused_at timestamptz,
    done_until timestamptz NOT NULL DEFAULT now(),  -- slots up to here are made, or let go
    updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

CREATE TABLE {schema}.cron_slots (
    entry text NOT NULL,
    slot timestamptz NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (entry, slot)
);

ALTER TABLE {schema}.nodes ADD COLUMN crons text[] NOT NULL DEFAULT '{}';  -- the entries that it declares
