-- Breakers: a row for each job type whose jobs have failed, shared by all nodes.

CREATE TABLE {schema}.breakers (
    type text PRIMARY KEY,
    version bigint NOT NULL DEFAULT 0,  -- goes up whenever the state changes
    state text NOT NULL DEFAULT 'closed' CHECK (state IN ('closed', 'open', 'half-open')),
    is_by_hand boolean NOT NULL DEFAULT false,  -- opened by hand: it stays open until it is closed by hand
    moved_at timestamptz NOT NULL DEFAULT now(),
    opened_at timestamptz,
    reset_timeout float8 NOT NULL DEFAULT 30,  -- seconds from there until probes may try
    failures bigint NOT NULL DEFAULT 0,  -- in a row, while it is closed
    successes bigint NOT NULL DEFAULT 0,  -- of probes, while it is half open
    probing uuid[] NOT NULL DEFAULT '{}',  -- the nodes that have probes out, each as often as it has
    half_seconds float8 NOT NULL DEFAULT 30,  -- half the window that calls are counted in
    half bigint NOT NULL DEFAULT 0,  -- the number of the half window that is counted now, from 1970 on
    calls bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    calls_before bigint NOT NULL DEFAULT 0,  -- in the half window before
    failed_before bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
