-- Limits of queues that hold across all nodes: how many jobs run at once, how many start in a time, and how keys share a queue.

ALTER TABLE {schema}.queues
    ADD COLUMN pace float8;  -- not NULL where the queue is limited: s after which to ask again for what a claim was not given

-- What is asked, and what has been taken. A claim of a limited queue locks its row, so that all others of it wait until it is committed.
CREATE TABLE {schema}.limits (
    queue text PRIMARY KEY,
    path text[],  -- where in the arguments a job's key is
    concurrency integer CHECK (concurrency > 0),
    rate integer CHECK (rate > 0),
    per float8 CHECK (per > 0),
    burst integer CHECK (burst > 0),  -- a bucket of tokens; NULL for fixed windows
    key_concurrency integer CHECK (key_concurrency > 0),
    key_rate integer CHECK (key_rate > 0),
    key_per float8 CHECK (key_per > 0),
    key_burst integer CHECK (key_burst > 0),
    weights jsonb NOT NULL DEFAULT '{}',
    is_shared boolean NOT NULL DEFAULT false,
    jobs bigint[] NOT NULL DEFAULT '{}',  -- who has a place, and which claim of it: as long as it executes under that claim
    claimed_at timestamptz[] NOT NULL DEFAULT '{}',
    level float8,  -- starts in the window that began at level_at, or tokens in the bucket then
    level_at timestamptz,
    clock float8 NOT NULL DEFAULT 0,  -- how far the keys have come that are served: one that comes anew begins here
    swept_at timestamptz NOT NULL DEFAULT now(),  -- when keys were forgotten that nobody uses any more
    looked_up_to text COLLATE "C"  -- where among the keys the next claim goes on, where they are too many to look at all
) WITH (fillfactor = 50);

CREATE TABLE {schema}.limit_keys (
    queue text NOT NULL,
    key text COLLATE "C" NOT NULL,
    jobs bigint[] NOT NULL DEFAULT '{}',
    claimed_at timestamptz[] NOT NULL DEFAULT '{}',
    level float8,
    level_at timestamptz,
    passed float8 NOT NULL DEFAULT 0,  -- jobs that it was given, by its weight, on the queue's clock
    used_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (queue, key)
) WITH (fillfactor = 50);

-- The key of a job; what has none, or one that PostgreSQL cannot hold as text, has the empty one. A long one would not fit into an index.
CREATE FUNCTION {schema}.key_of(args json, path text[]) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    key text;
BEGIN
    key := args #>> path;
    RETURN CASE WHEN octet_length(key) > 200 THEN md5(key) ELSE COALESCE(key, '') END;
EXCEPTION
    WHEN data_exception OR program_limit_exceeded OR statement_too_complex THEN
        RETURN '';
END
$$;

-- When the window began that an instant is in.
CREATE FUNCTION {schema}.window_of(at timestamptz, per float8) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT to_timestamp(floor(extract(epoch FROM at)::float8 / per) * per)
$$;

-- The tokens in a bucket at an instant.
CREATE FUNCTION {schema}.tokens(rate integer, per float8, burst integer, level float8, level_at timestamptz, at timestamptz)
RETURNS float8 LANGUAGE sql STABLE AS $$
    SELECT least(burst, COALESCE(level + greatest(0, extract(epoch FROM at - level_at)::float8) * rate / per, burst))
$$;

-- How many jobs may start at an instant. None at the very end of a window: they would in truth begin in the next.
CREATE FUNCTION {schema}.may_start(rate integer, per float8, burst integer, level float8, level_at timestamptz, at timestamptz)
RETURNS float8 LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN rate IS NULL THEN 'infinity'
                WHEN burst IS NOT NULL THEN floor({schema}.tokens(rate, per, burst, level, level_at, at))
                WHEN {schema}.window_of(at, per) <> {schema}.window_of(at + least(per / 20, 0.05) * interval '1 second', per) THEN 0
                WHEN level_at = {schema}.window_of(at, per) THEN rate - level
                ELSE rate END
$$;

-- The level once so many jobs have started.
CREATE FUNCTION {schema}.level_after(
    rate integer, per float8, burst integer, level float8, level_at timestamptz, at timestamptz, started bigint
) RETURNS float8 LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN rate IS NULL THEN NULL
                WHEN burst IS NOT NULL THEN {schema}.tokens(rate, per, burst, level, level_at, at) - started
                WHEN level_at = {schema}.window_of(at, per) THEN level + started
                ELSE started END
$$;

-- Claim up to n jobs of a limited queue, as fetch_jobs_where does, as far as its limits allow. In a function since each of its
-- statements sees what was committed before it: the first waits for the claims of others, and the next see what they took.
-- Nothing else has to give a place back: a job has it while it executes under the claim that is noted here, however that ends.
CREATE FUNCTION {schema}.claim_limited(
    of_queue text, n bigint, of_types text[], claiming uuid, with_tags text[], with_args text, instants timestamptz[], ids bigint[]
) RETURNS SETOF {schema}.live_jobs LANGUAGE plpgsql
-- the planner knows nothing of how few are wanted, and would read and sort all; planning anew takes longer than claiming
SET enable_bitmapscan = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    most_keys CONSTANT integer := 100;  -- are looked at in one go
    most_rounds CONSTANT integer := 10;
    asked {schema}.limits;
    began timestamptz;
    busy bigint[] := '{}';
    busy_since timestamptz[] := '{}';
    free bigint;
    taken bigint[] := '{}';
    got bigint[];
    looked integer;
    up_to text;
    came_to float8;
    began_at_first boolean;
BEGIN
    SELECT * INTO asked FROM {schema}.limits AS limited WHERE limited.queue = of_queue FOR UPDATE;
    began := clock_timestamp();
    IF asked.queue IS NULL OR NOT EXISTS (
        SELECT FROM {schema}.nodes AS node
        WHERE node.id = claiming AND node.expires_at > began
          AND NOT EXISTS (
              SELECT FROM {schema}.queues AS control
              WHERE control.queue = of_queue AND control.node IN ('', node.label, node.id::text) AND control.paused_at IS NOT NULL
          )
    ) THEN
        RETURN;
    END IF;
    IF asked.concurrency IS NOT NULL THEN
        SELECT COALESCE(array_agg(job.id), '{}'), COALESCE(array_agg(job.attempted_at), '{}') INTO busy, busy_since
        FROM unnest(asked.jobs, asked.claimed_at) AS held (id, at)
        JOIN {schema}.live_jobs AS job ON job.id = held.id AND job.attempted_at = held.at
        WHERE job.state = 'executing';
    END IF;
    free := greatest(0, least(
        n, asked.concurrency - cardinality(busy),
        {schema}.may_start(asked.rate, asked.per, asked.burst, asked.level, asked.level_at, began)
    ));
    IF free > 0 AND asked.path IS NULL THEN
        WITH claimed AS (
            UPDATE {schema}.live_jobs AS job
            SET state = 'executing', attempt = job.attempt + 1, attempted_at = began, node = claiming
            WHERE job.ctid = ANY (ARRAY(
                SELECT ready.ctid
                FROM unnest(instants, ids) WITH ORDINALITY AS mark (scheduled_at, id, place)
                CROSS JOIN LATERAL (
                    SELECT of_it.ctid
                    FROM {schema}.live_jobs AS of_it
                    WHERE of_it.state = 'available'
                      AND of_it.queue = of_queue
                      AND of_it.priority = mark.place - 1
                      AND (of_it.scheduled_at, of_it.id) >= (mark.scheduled_at, mark.id)
                      AND of_it.type = ANY (of_types)
                      AND (with_tags = '{}' OR COALESCE(of_it.tags, '{}') @> with_tags)
                      AND (with_args = '{}' OR {schema}.contains(of_it.args, with_args::jsonb))
                    ORDER BY of_it.scheduled_at, of_it.id
                    LIMIT free
                    FOR UPDATE SKIP LOCKED
                ) AS ready
                LIMIT free
            ))
            RETURNING job.id
        )
        SELECT COALESCE(array_agg(claimed.id), '{}') INTO taken FROM claimed;
    ELSIF free > 0 THEN
        up_to := asked.looked_up_to;
        FOR round IN 1..most_rounds LOOP
            began_at_first := up_to IS NULL;
            EXECUTE format('SELECT * FROM {schema}.%I($1, $2, $3, $4, $5, $6, $7, $8, $9)', 'claim_by_key_' || md5(of_queue))
            USING up_to, most_keys, asked, free - cardinality(taken), of_types, with_tags, with_args, began, claiming
            INTO got, looked, up_to, came_to;
            taken := taken || got;
            asked.clock := greatest(asked.clock, came_to);
            IF looked < most_keys THEN
                up_to := NULL;
            END IF;
            EXIT WHEN cardinality(taken) >= free OR cardinality(got) = 0 AND looked < most_keys AND began_at_first;
        END LOOP;
    END IF;
    IF cardinality(taken) > 0 OR up_to IS DISTINCT FROM asked.looked_up_to THEN
        UPDATE {schema}.limits AS limited
        SET jobs = CASE WHEN asked.concurrency IS NULL THEN '{}' ELSE busy || taken END,
            claimed_at = CASE WHEN asked.concurrency IS NULL THEN '{}'
                              ELSE busy_since || array_fill(began, ARRAY[cardinality(taken)]) END,
            level = {schema}.level_after(asked.rate, asked.per, asked.burst, asked.level, asked.level_at, began, cardinality(taken)),
            level_at = CASE WHEN asked.burst IS NULL THEN {schema}.window_of(began, asked.per) ELSE began END,
            clock = asked.clock,
            looked_up_to = up_to
        WHERE limited.queue = of_queue;
        RETURN QUERY SELECT * FROM {schema}.live_jobs AS job WHERE job.id = ANY (taken);
    END IF;
    IF asked.swept_at < began - interval '1 hour' THEN
        UPDATE {schema}.limits AS limited SET swept_at = began WHERE limited.queue = of_queue;
        DELETE FROM {schema}.limit_keys AS of_it
        WHERE of_it.queue = of_queue AND of_it.used_at < began - (3600 + COALESCE(asked.key_per, 0)) * interval '1 second'
          AND NOT EXISTS (SELECT FROM unnest(of_it.jobs, of_it.claimed_at) AS held (id, at)
                          JOIN {schema}.live_jobs AS job ON job.id = held.id AND job.attempted_at = held.at
                          WHERE job.state = 'executing');
    END IF;
END
$$;

-- Make for one queue what claims by key need: an index of the keys of its ready jobs, and the function that claims by it. They are
-- made where the queue is limited so, as queue and path must stand in their text: else the planner cannot see that they belong
-- together. Where the path is NULL both go. As whoever owns the schema: nodes need not. Who waits for the table makes all others wait.
-- The function claims up to n jobs of the next keys after one. It goes from key to key by the index, and of each takes as many as could
-- be its part, and some more. The first on the clock go first: each job takes its key a step forward there, a longer one where the
-- key has less weight. It gives the ids, how many keys it has looked at, the last of them, and how far on the clock it came.
CREATE FUNCTION {schema}.index_keys(of_queue text, path text[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    indexed text := 'live_jobs_keys_' || md5(of_queue);
    claims text := 'claim_by_key_' || md5(of_queue);
BEGIN
    EXECUTE format('DROP INDEX IF EXISTS {schema}.%I', indexed);
    EXECUTE format('DROP FUNCTION IF EXISTS {schema}.%I', claims);
    IF path IS NULL THEN
        RETURN;
    END IF;
    EXECUTE format(
        'CREATE INDEX %I ON {schema}.live_jobs (({schema}.key_of(args, %L::text[]) COLLATE "C"), priority, scheduled_at, id) '
        'WHERE state = ''available'' AND queue = %L', indexed, path, of_queue);
    EXECUTE format($format$
CREATE FUNCTION {schema}.%1$I(
    after text, most_keys integer, asked {schema}.limits, n bigint, of_types text[], with_tags text[], with_args text,
    began timestamptz, claiming uuid, OUT got bigint[], OUT looked integer, OUT up_to text, OUT came_to float8
) LANGUAGE plpgsql AS $function$
#variable_conflict use_column
BEGIN
    WITH RECURSIVE walk AS (
        SELECT (SELECT {schema}.key_of(args, %3$L::text[]) COLLATE "C"
                FROM {schema}.live_jobs
                WHERE state = 'available' AND queue = %2$L AND {schema}.key_of(args, %3$L::text[]) COLLATE "C" >= COALESCE(after || chr(1), '')
                ORDER BY {schema}.key_of(args, %3$L::text[]) COLLATE "C"
                LIMIT 1) AS key, 1 AS place
        UNION ALL
        SELECT (SELECT {schema}.key_of(args, %3$L::text[]) COLLATE "C"
                FROM {schema}.live_jobs
                WHERE state = 'available' AND queue = %2$L AND {schema}.key_of(args, %3$L::text[]) COLLATE "C" > walk.key
                ORDER BY {schema}.key_of(args, %3$L::text[]) COLLATE "C"
                LIMIT 1), place + 1
        FROM walk
        WHERE key IS NOT NULL AND place < most_keys
    ), looked_at AS MATERIALIZED (
        SELECT walk.key, busy.ids, busy.since, used.level, used.level_at,
               greatest(COALESCE(used.passed, 0), asked.clock) AS at,
               COALESCE((asked.weights ->> walk.key)::float8, 1) AS weight,
               least(asked.key_concurrency - cardinality(busy.ids),
                     CASE WHEN asked.key_rate IS NULL THEN 'infinity' ELSE
                         {schema}.may_start(asked.key_rate, asked.key_per, asked.key_burst, used.level, used.level_at, began)
                     END) AS free
        FROM walk
        LEFT JOIN {schema}.limit_keys AS used ON used.queue = %2$L AND used.key = walk.key
        CROSS JOIN LATERAL (
            SELECT COALESCE(array_agg(job.id), '{}') AS ids, COALESCE(array_agg(job.attempted_at), '{}') AS since
            FROM unnest(used.jobs, used.claimed_at) AS held (id, at)
            JOIN {schema}.live_jobs AS job ON job.id = held.id AND job.attempted_at = held.at
            WHERE job.state = 'executing'
        ) AS busy
        WHERE walk.key IS NOT NULL
    ), parts AS MATERIALIZED (
        SELECT *, least(free, ceil(2 * n * weight / sum(weight) OVER ()) + 1, 1000000)::bigint AS part
        FROM looked_at
        WHERE free >= 1
    ), picked AS MATERIALIZED (
        SELECT ready.ctid
        FROM parts
        CROSS JOIN LATERAL (
            SELECT ctid, priority, scheduled_at, row_number() OVER (ORDER BY priority, scheduled_at, id) - 1 AS before
            FROM {schema}.live_jobs AS job
            WHERE state = 'available'
              AND queue = %2$L
              AND {schema}.key_of(args, %3$L::text[]) COLLATE "C" = parts.key
              AND type = ANY (of_types)
              AND (with_tags = '{}' OR COALESCE(tags, '{}') @> with_tags)
              AND (with_args = '{}' OR {schema}.contains(args, with_args::jsonb))
            ORDER BY priority, scheduled_at, id
            LIMIT part
        ) AS ready
        ORDER BY ready.priority, parts.at + ready.before / parts.weight, ready.scheduled_at
        LIMIT n
    ), claimed AS (
        UPDATE {schema}.live_jobs
        SET state = 'executing', attempt = attempt + 1, attempted_at = began, node = claiming
        WHERE ctid = ANY (ARRAY(
            SELECT ctid
            FROM {schema}.live_jobs
            WHERE ctid = ANY (ARRAY(SELECT ctid FROM picked)) AND state = 'available'
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING id, {schema}.key_of(args, %3$L::text[]) COLLATE "C" AS key
    ), of_keys AS MATERIALIZED (
        SELECT parts.*, new, cardinality(new) AS started
        FROM (SELECT key, array_agg(id) AS new FROM claimed GROUP BY key) AS of_key
        JOIN parts ON parts.key = of_key.key
    ), noted AS (
        INSERT INTO {schema}.limit_keys AS used (queue, key, jobs, claimed_at, level, level_at, passed, used_at)
        SELECT %2$L, key,
               CASE WHEN asked.key_concurrency IS NULL THEN '{}' ELSE ids || new END,
               CASE WHEN asked.key_concurrency IS NULL THEN '{}' ELSE since || array_fill(began, ARRAY[started]) END,
               CASE WHEN asked.key_rate IS NOT NULL THEN
                   {schema}.level_after(asked.key_rate, asked.key_per, asked.key_burst, level, level_at, began, started)
               END,
               CASE WHEN asked.key_rate IS NULL THEN NULL
                    WHEN asked.key_burst IS NULL THEN {schema}.window_of(began, asked.key_per) ELSE began END,
               at + started / weight, began
        FROM of_keys
        ON CONFLICT (queue, key) DO UPDATE
        SET jobs = excluded.jobs, claimed_at = excluded.claimed_at, level = excluded.level, level_at = excluded.level_at,
            passed = excluded.passed, used_at = excluded.used_at
    )
    SELECT ARRAY(SELECT unnest(new) FROM of_keys),
           (SELECT count(*) FROM looked_at),
           (SELECT max(key) FROM looked_at),
           (SELECT max(at + (started - 1) / weight) FROM of_keys)
    INTO got, looked, up_to, came_to;
END
$function$
    $format$, claims, of_queue, path);
END
$$;
