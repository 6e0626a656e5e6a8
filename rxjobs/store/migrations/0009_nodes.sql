-- What nodes tell of themselves with each heartbeat, and the nodes that were there of late.

ALTER TABLE {schema}.nodes ADD COLUMN status jsonb;

CREATE TABLE {schema}.gone_nodes (
    id uuid PRIMARY KEY,
    label text NOT NULL,
    pid integer NOT NULL,
    started_at timestamptz NOT NULL,
    gone_at timestamptz NOT NULL DEFAULT now(),
    is_lost boolean NOT NULL,  -- its lease ran out; otherwise it has left
    serves jsonb NOT NULL,
    status jsonb  -- what it told last
);
