-- Claims by keys, again: no job goes before a more urgent one of a key that has more of them than its part; each key is looked up and not
-- all of the queue; who has a place of a key is looked up only where its places run short; and what is claimed is read once.

ALTER TABLE {schema}.limit_keys ADD COLUMN counted integer NOT NULL DEFAULT 0;  -- of `jobs`, how many still ran when they were looked up

-- Claim up to n jobs of a limited queue, as fetch_jobs_where does, as far as its limits allow. In a function since each of its
-- statements sees what was committed before it: the first waits for the claims of others, and the next see what they took.
-- Nothing else has to give a place back: a job has it while it executes under the claim that is noted here, however that ends.
CREATE OR REPLACE FUNCTION {schema}.claim_limited(
    of_queue text, n bigint, of_types text[], claiming uuid, with_tags text[], with_args text, instants timestamptz[], ids bigint[]
) RETURNS SETOF {schema}.live_jobs LANGUAGE plpgsql
-- the planner knows nothing of how few are wanted, and would read and sort all; planning anew takes longer than claiming
SET enable_bitmapscan = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    asked {schema}.limits;
    began timestamptz;
    busy bigint[] := '{}';
    busy_since timestamptz[] := '{}';
    free bigint;
    taken bigint[] := '{}';
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
        IF cardinality(taken) > 0 THEN
            UPDATE {schema}.limits AS limited
            SET jobs = CASE WHEN asked.concurrency IS NULL THEN '{}' ELSE busy || taken END,
                claimed_at = CASE WHEN asked.concurrency IS NULL THEN '{}'
                                  ELSE busy_since || array_fill(began, ARRAY[cardinality(taken)]) END,
                level = {schema}.level_after(asked.rate, asked.per, asked.burst, asked.level, asked.level_at, began, cardinality(taken)),
                level_at = CASE WHEN asked.burst IS NULL THEN {schema}.window_of(began, asked.per) ELSE began END
            WHERE limited.queue = of_queue;
            RETURN QUERY SELECT * FROM {schema}.live_jobs AS job WHERE job.id = ANY (taken);
        END IF;
    ELSIF free > 0 THEN
        RETURN QUERY EXECUTE format('SELECT * FROM {schema}.%I($1, $2, $3, $4, $5, $6, $7, $8)', 'claim_keys_' || md5(of_queue))
        USING free, of_types, claiming, with_tags, with_args, began, busy, busy_since;
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

-- Make for one queue what claims by key: the queue and where its keys are must stand in the text, else the planner cannot see that they
-- belong to the index. The function claims up to n jobs, for which the queue as a whole has room, in rounds of a hundred keys. It goes
-- from key to key by the index, and of each takes as many as could be its part, and some more: twice as many with each round. The first
-- on the clock go first: each job takes its key a step forward there, a longer one where the key has less weight. No more of a key run
-- than are noted: as long as enough places are left by that, nobody has to look up who of them still does.
CREATE FUNCTION {schema}.make_claim_keys(of_queue text, path text[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format($format$
CREATE FUNCTION {schema}.%1$I(
    n bigint, of_types text[], claiming uuid, with_tags text[], with_args text, began timestamptz,
    busy bigint[], busy_since timestamptz[]
) RETURNS SETOF {schema}.live_jobs LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    most_keys CONSTANT integer := 100;  -- are looked at in one go
    most_rounds CONSTANT integer := 10;
    asked {schema}.limits;
    got bigint;
BEGIN
    FOR round IN 1..most_rounds LOOP
        SELECT * INTO asked FROM {schema}.limits WHERE queue = %2$L;
        IF round > 1 THEN
            busy := asked.jobs;
            busy_since := asked.claimed_at;
        END IF;
        RETURN QUERY WITH RECURSIVE walk AS (
            SELECT (SELECT {schema}.key_of(args, %3$L::text[]) COLLATE "C"
                    FROM {schema}.live_jobs
                    WHERE state = 'available' AND queue = %2$L
                      AND {schema}.key_of(args, %3$L::text[]) COLLATE "C" >= COALESCE(asked.looked_up_to || chr(1), '')
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
        ), known AS MATERIALIZED (
            SELECT walk.key, used.level, used.level_at, COALESCE(used.jobs, '{}') AS jobs, COALESCE(used.claimed_at, '{}') AS claimed_at,
                   COALESCE(used.counted, 0) AS counted,
                   greatest(COALESCE(used.passed, 0), asked.clock) AS at,
                   COALESCE((asked.weights ->> walk.key)::float8, 1) AS weight
            FROM walk
            LEFT JOIN LATERAL (
                -- a limit, so that each is looked up: there may be far more
                SELECT * FROM {schema}.limit_keys AS of_it WHERE of_it.queue = %2$L AND of_it.key = walk.key LIMIT 1
            ) AS used ON true
            WHERE walk.key IS NOT NULL
        ), weighed AS MATERIALIZED (
            SELECT *, least(n, ceil(1.5 * 2 ^ (round - 1) * n * weight / sum(weight) OVER ()) + 1) AS wanted
            FROM known
        ), looked_at AS MATERIALIZED (
            SELECT weighed.key, weighed.level, weighed.level_at, at, weight, runs.jobs, runs.claimed_at, runs.counted,
                   least(asked.key_concurrency - cardinality(runs.jobs),
                         CASE WHEN asked.key_rate IS NULL THEN 'infinity' ELSE
                             {schema}.may_start(asked.key_rate, asked.key_per, asked.key_burst, weighed.level, weighed.level_at, began)
                         END) AS free
            FROM weighed
            CROSS JOIN LATERAL (
                SELECT weighed.jobs, weighed.claimed_at, weighed.counted
                WHERE NOT COALESCE(asked.key_concurrency - cardinality(weighed.jobs) < wanted
                                   OR cardinality(weighed.jobs) > 2 * weighed.counted + 100, false)
                UNION ALL
                SELECT COALESCE(array_agg(job.id), '{}'), COALESCE(array_agg(job.attempted_at), '{}'), count(*)::integer
                FROM unnest(weighed.jobs, weighed.claimed_at) AS held (id, at)
                JOIN {schema}.live_jobs AS job ON job.id = held.id AND job.attempted_at = held.at
                WHERE job.state = 'executing'
                HAVING asked.key_concurrency - cardinality(weighed.jobs) < wanted
                    OR cardinality(weighed.jobs) > 2 * weighed.counted + 100
            ) AS runs
        ), parts AS MATERIALIZED (
            SELECT *, least(free, ceil(1.5 * 2 ^ (round - 1) * n * weight / sum(weight) OVER ()) + 1, 1000000)::bigint AS part
            FROM looked_at
            WHERE free >= 1
        ), ready AS MATERIALIZED (
            SELECT of_key.*, parts.key, parts.at + of_key.before / parts.weight AS turn,
                   of_key.before = parts.part - 1 AND parts.part < parts.free AS may_have_more
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
            ) AS of_key
        ), picked AS MATERIALIZED (
            -- none before one that is more urgent and was not looked at yet
            SELECT ctid, key
            FROM ready
            WHERE priority <= COALESCE((SELECT min(priority) FROM ready WHERE may_have_more), 9)
            ORDER BY priority, turn, scheduled_at
            LIMIT n
        ), locked AS MATERIALIZED (
            SELECT job.ctid, job.id, picked.key
            FROM picked
            JOIN {schema}.live_jobs AS job ON job.ctid = picked.ctid
            WHERE job.state = 'available'
            FOR UPDATE OF job SKIP LOCKED
        ), claimed AS (
            UPDATE {schema}.live_jobs
            SET state = 'executing', attempt = attempt + 1, attempted_at = began, node = claiming
            WHERE ctid = ANY (ARRAY(SELECT ctid FROM locked))
            RETURNING *
        ), of_keys AS MATERIALIZED (
            SELECT parts.*, new, cardinality(new) AS started
            FROM (SELECT key, array_agg(id) AS new FROM locked GROUP BY key) AS of_key
            JOIN parts ON parts.key = of_key.key
        ), noted AS (
            INSERT INTO {schema}.limit_keys AS used (queue, key, jobs, claimed_at, counted, level, level_at, passed, used_at)
            SELECT %2$L, key,
                   CASE WHEN asked.key_concurrency IS NULL THEN '{}' ELSE jobs || new END,
                   CASE WHEN asked.key_concurrency IS NULL THEN '{}' ELSE claimed_at || array_fill(began, ARRAY[started]) END,
                   counted,
                   CASE WHEN asked.key_rate IS NOT NULL THEN
                       {schema}.level_after(asked.key_rate, asked.key_per, asked.key_burst, level, level_at, began, started)
                   END,
                   CASE WHEN asked.key_rate IS NULL THEN NULL
                        WHEN asked.key_burst IS NULL THEN {schema}.window_of(began, asked.key_per) ELSE began END,
                   at + started / weight, began
            FROM of_keys
            ON CONFLICT (queue, key) DO UPDATE
            SET jobs = excluded.jobs, claimed_at = excluded.claimed_at, counted = excluded.counted, level = excluded.level,
                level_at = excluded.level_at, passed = excluded.passed, used_at = excluded.used_at
        ), came_to AS (
            SELECT (SELECT CASE WHEN count(*) = most_keys THEN max(key) END FROM looked_at) AS key,
                   (SELECT max(at + (started - 1) / weight) FROM of_keys) AS clock,
                   ARRAY(SELECT id FROM locked) AS new
        ), noted_of_all AS (
            UPDATE {schema}.limits AS limited
            SET jobs = CASE WHEN asked.concurrency IS NULL THEN '{}' ELSE busy || new END,
                claimed_at = CASE WHEN asked.concurrency IS NULL THEN '{}'
                                  ELSE busy_since || array_fill(began, ARRAY[cardinality(new)]) END,
                level = CASE WHEN asked.rate IS NOT NULL THEN
                    {schema}.level_after(asked.rate, asked.per, asked.burst, asked.level, asked.level_at, began, cardinality(new))
                END,
                level_at = CASE WHEN asked.rate IS NULL THEN NULL
                                WHEN asked.burst IS NULL THEN {schema}.window_of(began, asked.per) ELSE began END,
                clock = greatest(asked.clock, came_to.clock),
                looked_up_to = came_to.key
            FROM came_to
            WHERE limited.queue = %2$L AND (cardinality(new) > 0 OR came_to.key IS DISTINCT FROM asked.looked_up_to)
        )
        SELECT * FROM claimed;
        GET DIAGNOSTICS got = ROW_COUNT;
        n := n - got;
        EXIT WHEN n <= 0 OR got = 0 AND asked.looked_up_to IS NULL
              AND (SELECT looked_up_to IS NULL FROM {schema}.limits WHERE queue = %2$L);
    END LOOP;
END
$function$
    $format$, 'claim_keys_' || md5(of_queue), of_queue, path);
END
$$;

-- Make for one queue what claims by key need: an index of the keys of its ready jobs, and the function that claims by it. Where the
-- path is NULL both go. As whoever owns the schema: nodes need not. Who waits for the table makes all others wait.
CREATE OR REPLACE FUNCTION {schema}.index_keys(of_queue text, path text[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    indexed text := 'live_jobs_keys_' || md5(of_queue);
BEGIN
    EXECUTE format('DROP INDEX IF EXISTS {schema}.%I', indexed);
    EXECUTE format('DROP FUNCTION IF EXISTS {schema}.%I', 'claim_by_key_' || md5(of_queue));  -- of an older step
    EXECUTE format('DROP FUNCTION IF EXISTS {schema}.%I', 'claim_keys_' || md5(of_queue));
    IF path IS NULL THEN
        RETURN;
    END IF;
    EXECUTE format(
        'CREATE INDEX %I ON {schema}.live_jobs (({schema}.key_of(args, %L::text[]) COLLATE "C"), priority, scheduled_at, id) '
        'WHERE state = ''available'' AND queue = %L', indexed, path, of_queue);
    PERFORM {schema}.make_claim_keys(of_queue, path);
END
$$;

SELECT {schema}.make_claim_keys(queue, path) FROM {schema}.limits WHERE path IS NOT NULL;
