-- Claims by keys, a third time: in several small statements, which begin sooner than one large one, and in a function that whoever knows
-- that a queue has keys calls by itself. Where keys have the same weight and their jobs the same priority, which is nearly always so,
-- nothing has to be sorted: each key gives its part, and those that come next one more.

ALTER TABLE {schema}.limits ADD COLUMN last_key text COLLATE "C" NOT NULL DEFAULT '';  -- up to which key jobs were given at `clock`

-- As before; what catches errors takes longer than what looks for a key, and there are none in what is short and plain.
CREATE OR REPLACE FUNCTION {schema}.key_of(args json, path text[]) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    key text;
BEGIN
    IF octet_length(args::text) < 1000 AND strpos(args::text, '\u') = 0 THEN
        key := args #>> path;
        RETURN CASE WHEN octet_length(key) > 200 THEN md5(key) ELSE COALESCE(key, '') END;
    END IF;
    BEGIN
        key := args #>> path;
        RETURN CASE WHEN octet_length(key) > 200 THEN md5(key) ELSE COALESCE(key, '') END;
    EXCEPTION
        WHEN data_exception OR program_limit_exceeded OR statement_too_complex THEN
            RETURN '';
    END;
END
$$;

-- Forget the keys of a queue that nobody has used for an hour and longer than a rate looks back, and whose jobs do not run.
CREATE FUNCTION {schema}.forget_keys(of_queue text, per float8) RETURNS void LANGUAGE sql AS $$
    UPDATE {schema}.limits SET swept_at = clock_timestamp() WHERE queue = of_queue;
    DELETE FROM {schema}.limit_keys AS of_it
    WHERE of_it.queue = of_queue AND of_it.used_at < clock_timestamp() - (3600 + COALESCE(per, 0)) * interval '1 second'
      AND NOT EXISTS (SELECT FROM unnest(of_it.jobs, of_it.claimed_at) AS held (id, at)
                      JOIN {schema}.live_jobs AS job ON job.id = held.id AND job.attempted_at = held.at
                      WHERE job.state = 'executing');
$$;

-- Make for one queue what claims by key, up to n jobs: the queue and where its keys are must stand in the text, else the planner cannot see
-- that they belong to the index. It goes from key to key by the index, from the last to the first: before the first job of a key is what
-- was claimed of late. Where there are more than a hundred, it goes on where the claim before has ended. On the queue's clock a key may
-- have a job at each multiple of 1 / weight, and those of one moment have theirs one after the other: so that one number and one key say
-- how far all have come, and who had nothing to do has saved nothing. No more of a key run than are noted: as long as enough places are
-- left by that, nobody has to look up who of them still does.
CREATE FUNCTION {schema}.make_claim_of(of_queue text, path text[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    key text := format('{schema}.key_of(args, %L::text[]) COLLATE "C"', path);
    ready text := format('FROM {schema}.live_jobs WHERE state = ''available'' AND queue = %L', of_queue);
    walk text := format($walk$walk AS (
        SELECT last.*, 1 AS place
        FROM (
            (SELECT %1$s AS key %2$s AND after IS NULL ORDER BY %1$s DESC LIMIT 1)
            UNION ALL
            (SELECT %1$s %2$s AND %1$s < after ORDER BY %1$s DESC LIMIT 1)
        ) AS last
        UNION ALL
        SELECT before.key, place + 1
        FROM walk
        CROSS JOIN LATERAL (SELECT %1$s AS key %2$s AND %1$s < walk.key ORDER BY %1$s DESC LIMIT 1) AS before
        WHERE place < most_keys
    )$walk$, key, ready);
    alike text := $alike$
        SELECT one.*, least(room, part_of_each + CASE WHEN (place - 1 - passed + k) % k < more THEN 1 ELSE 0 END) AS part
        FROM unnest(keys, rooms) WITH ORDINALITY AS one (key, room, place)
    $alike$;
BEGIN
    EXECUTE format($format$
CREATE FUNCTION {schema}.%1$I(n bigint, of_types text[], claiming uuid, with_tags text[], with_args text)
RETURNS SETOF {schema}.live_jobs LANGUAGE plpgsql
SET enable_bitmapscan = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $function$
#variable_conflict use_column
DECLARE
    most_keys CONSTANT integer := 100;  -- are looked at in one go
    most_rounds CONSTANT integer := 10;
    asked {schema}.limits;
    began timestamptz;
    busy bigint[] := '{}';
    busy_since timestamptz[] := '{}';
    free bigint;
    is_noted boolean;  -- whether something has to be known of each key
    after text;
    keys text[];  -- those that have ready jobs, and how many may start of each
    k integer;
    rooms bigint[];
    levels float8[];
    level_ats timestamptz[];
    passed integer;  -- how many of them had what is theirs at the clock's moment
    least_room bigint;
    wanted bigint;  -- as many as a claim may want of one
    is_long boolean;
    are_all boolean;  -- otherwise they have their turns as they are looked at
    part_of_each bigint;
    more integer;  -- how many of them get one more than the others
    picked tid[];
    new bigint[];
    places integer[];
    is_exact boolean;  -- whether each has given just its part
    turn float8;
    is_left boolean;
    taken bigint[] := '{}';
BEGIN
    SELECT * INTO asked FROM {schema}.limits WHERE queue = %2$L FOR UPDATE;
    began := clock_timestamp();
    IF asked.queue IS NULL OR NOT EXISTS (
        SELECT FROM {schema}.nodes AS node
        WHERE node.id = claiming AND node.expires_at > began
          AND NOT EXISTS (
              SELECT FROM {schema}.queues AS control
              WHERE control.queue = %2$L AND control.node IN ('', node.label, node.id::text) AND control.paused_at IS NOT NULL
          )
    ) THEN
        RETURN;
    END IF;
    free := n;
    IF asked.concurrency IS NOT NULL OR asked.rate IS NOT NULL THEN
        SELECT COALESCE(array_agg(job.id), '{}'), COALESCE(array_agg(job.attempted_at), '{}') INTO busy, busy_since
        FROM unnest(asked.jobs, asked.claimed_at) AS held (id, at)
        JOIN {schema}.live_jobs AS job ON job.id = held.id AND job.attempted_at = held.at
        WHERE job.state = 'executing';
        free := greatest(0, least(
            n, asked.concurrency - cardinality(busy),
            CASE WHEN asked.rate IS NOT NULL THEN
                {schema}.may_start(asked.rate, asked.per, asked.burst, asked.level, asked.level_at, began)
            END
        ));
    END IF;
    is_noted := asked.key_concurrency IS NOT NULL OR asked.key_rate IS NOT NULL;
    after := asked.looked_up_to;
    FOR round IN 1..most_rounds LOOP
        EXIT WHEN free = 0;
        IF NOT is_noted THEN
            WITH RECURSIVE %4$s
            SELECT array_agg(key), array_fill(1000000::bigint, ARRAY[count(*)::integer]), count(*),
                   count(*) FILTER (WHERE key >= asked.last_key)
            INTO keys, rooms, k, passed
            FROM walk;
        ELSE
            FOR look IN 1..2 LOOP
                WITH RECURSIVE %4$s
                SELECT array_agg(walk.key), count(*), count(*) FILTER (WHERE walk.key >= asked.last_key),
                       array_agg(used.level), array_agg(used.level_at),
                       array_agg(least(
                           1000000, asked.key_concurrency - COALESCE(cardinality(used.jobs), 0),
                           CASE WHEN asked.key_rate IS NOT NULL THEN
                               {schema}.may_start(asked.key_rate, asked.key_per, asked.key_burst, used.level, used.level_at, began)
                           END
                       )::bigint),
                       min(asked.key_concurrency - cardinality(used.jobs)),
                       bool_or(cardinality(used.jobs) > 2 * used.counted + 100)
                INTO keys, k, passed, levels, level_ats, rooms, least_room, is_long
                FROM walk
                LEFT JOIN LATERAL (
                    -- a limit, so that each is looked up: there may be far more
                    SELECT * FROM {schema}.limit_keys AS of_it WHERE of_it.queue = %2$L AND of_it.key = walk.key LIMIT 1
                ) AS used ON true;
                wanted := CASE WHEN asked.weights = '{}' THEN least(free, free * 2 ^ round / greatest(k, 1) + 2) ELSE free END;
                EXIT WHEN look = 2 OR NOT COALESCE(is_long OR least_room < wanted, false);
                UPDATE {schema}.limit_keys AS used
                SET jobs = runs.jobs, claimed_at = runs.claimed_at, counted = cardinality(runs.jobs)
                FROM (
                    SELECT of_it.ctid AS of_key, running.*
                    FROM unnest(keys) AS one (key)
                    CROSS JOIN LATERAL (
                        SELECT ctid, * FROM {schema}.limit_keys AS noted WHERE noted.queue = %2$L AND noted.key = one.key LIMIT 1
                    ) AS of_it
                    CROSS JOIN LATERAL (
                        SELECT COALESCE(array_agg(job.id), '{}') AS jobs, COALESCE(array_agg(job.attempted_at), '{}') AS claimed_at
                        FROM unnest(of_it.jobs, of_it.claimed_at) AS held (id, at)
                        JOIN {schema}.live_jobs AS job ON job.id = held.id AND job.attempted_at = held.at
                        WHERE job.state = 'executing'
                    ) AS running
                    WHERE asked.key_concurrency - cardinality(of_it.jobs) < wanted
                       OR cardinality(of_it.jobs) > 2 * of_it.counted + 100
                ) AS runs
                WHERE used.ctid = runs.of_key
                  AND (cardinality(used.jobs), used.counted) <> (cardinality(runs.jobs), cardinality(runs.jobs));
                EXIT WHEN NOT FOUND;
            END LOOP;
        END IF;
        picked := NULL;
        is_exact := false;
        are_all := after IS NULL AND k < most_keys;
        part_of_each := CASE WHEN are_all THEN free / greatest(k, 1) ELSE greatest(1, free / most_keys) END;
        IF round = 1 AND asked.weights = '{}' AND free >= k AND k > 0 THEN
            more := CASE WHEN are_all THEN free %% k ELSE 0 END;
            SELECT array_agg(job.ctid), array_agg(job.id), array_agg(place), min(priority) = max(priority)
            INTO picked, new, places, is_exact
            FROM (%5$s) AS parts
            CROSS JOIN LATERAL (
                SELECT ctid, id, priority
                %6$s AND %3$s = parts.key
                  AND type = ANY (of_types)
                  AND (with_tags = '{}' OR COALESCE(tags, '{}') @> with_tags)
                  AND (with_args = '{}' OR {schema}.contains(args, with_args::jsonb))
                ORDER BY priority, scheduled_at, id
                LIMIT part
                FOR UPDATE SKIP LOCKED
            ) AS job
            WHERE part > 0;
        END IF;
        IF is_exact THEN
            is_exact := cardinality(picked) = k * part_of_each + more;
            asked.last_key := CASE WHEN NOT are_all THEN keys[k] WHEN more > 0 THEN keys[(passed + more - 1) %% k + 1]
                                   ELSE asked.last_key END;
            asked.looked_up_to := keys[most_keys];
            is_left := true;
        ELSE
            is_exact := false;
            WITH parts AS MATERIALIZED (
                SELECT one.*, COALESCE((asked.weights ->> key)::float8, 1) AS weight
                FROM unnest(keys, rooms) WITH ORDINALITY AS one (key, room, place)
                WHERE room > 0
            ), ready AS MATERIALIZED (
                SELECT of_key.ctid, priority, place,
                       -- its next multiple of 1 / weight, and for each job one more
                       CASE WHEN are_all THEN (greatest(
                           ceil(asked.clock * weight - 1e-6), floor(asked.clock * weight + 1e-6) + (key >= asked.last_key)::integer
                       ) + before) / weight ELSE place END AS turn,
                       before = part - 1 AND part < room AS may_have_more
                FROM (
                    SELECT parts.*, least(room, CASE
                               WHEN are_all THEN ceil(1.25 * 2 ^ (round - 1) * free * weight / (SELECT sum(weight) FROM parts)) + 1
                               ELSE floor((asked.clock + part_of_each) * weight + 1e-6) - floor(asked.clock * weight + 1e-6) END)::bigint
                           AS part
                    FROM parts
                ) AS parts
                CROSS JOIN LATERAL (
                    SELECT ctid, priority, row_number() OVER (ORDER BY priority, scheduled_at, id) - 1 AS before
                    %6$s AND %3$s = parts.key
                      AND type = ANY (of_types)
                      AND (with_tags = '{}' OR COALESCE(tags, '{}') @> with_tags)
                      AND (with_args = '{}' OR {schema}.contains(args, with_args::jsonb))
                    ORDER BY priority, scheduled_at, id
                    LIMIT part
                ) AS of_key
                ORDER BY priority, turn, place, before
                LIMIT free
            ), locked AS MATERIALIZED (
                SELECT job.ctid, job.id, place, turn
                FROM ready
                JOIN {schema}.live_jobs AS job ON job.ctid = ready.ctid
                WHERE job.state = 'available'
                  -- none before one that is more urgent and was not looked at yet
                  AND ready.priority <= COALESCE((SELECT min(priority) FROM ready WHERE may_have_more), 9)
                FOR UPDATE OF job SKIP LOCKED
            )
            SELECT array_agg(ctid), array_agg(id), array_agg(place), max(locked.turn),
                   COALESCE((SELECT bool_or(may_have_more) FROM ready), false)
            INTO picked, new, places, turn, is_left
            FROM locked;
            IF picked IS NOT NULL THEN
                asked.last_key := keys[places[cardinality(places)]];
            END IF;
            IF are_all THEN
                asked.clock := COALESCE(turn, asked.clock);
                asked.looked_up_to := NULL;
            ELSE
                asked.looked_up_to := CASE WHEN cardinality(picked) = free THEN asked.last_key ELSE keys[most_keys] END;
                asked.clock := asked.clock + CASE WHEN asked.looked_up_to IS NULL THEN part_of_each ELSE 0 END;
            END IF;
            asked.clock := asked.clock - CASE WHEN asked.clock < 1e6 THEN 0 ELSE 1e6 END;
            is_left := is_left OR NOT are_all;
        END IF;
        IF picked IS NOT NULL THEN
            IF is_noted THEN
                INSERT INTO {schema}.limit_keys AS used (queue, key, jobs, claimed_at, level, level_at, used_at)
                SELECT %2$L, keys[place],
                       CASE WHEN asked.key_concurrency IS NULL THEN '{}' ELSE of_key.ids END,
                       CASE WHEN asked.key_concurrency IS NULL THEN '{}' ELSE array_fill(began, ARRAY[started::integer]) END,
                       CASE WHEN asked.key_rate IS NOT NULL THEN {schema}.level_after(
                           asked.key_rate, asked.key_per, asked.key_burst, levels[place], level_ats[place], began, started
                       ) END,
                       CASE WHEN asked.key_rate IS NULL THEN NULL
                            WHEN asked.key_burst IS NULL THEN {schema}.window_of(began, asked.key_per) ELSE began END,
                       began
                FROM (
                    SELECT place, part AS started,
                           CASE WHEN asked.key_concurrency IS NOT NULL THEN new[up_to - part + 1:up_to] END AS ids
                    FROM (SELECT *, sum(part) OVER (ROWS UNBOUNDED PRECEDING)::bigint AS up_to FROM (%5$s) AS parts) AS parts
                    WHERE is_exact AND part > 0
                    UNION ALL
                    SELECT place, count(*), array_agg(id)
                    FROM unnest(new, places) AS one (id, place)
                    WHERE NOT is_exact
                    GROUP BY place
                ) AS of_key
                ON CONFLICT (queue, key) DO UPDATE
                SET jobs = used.jobs || excluded.jobs, claimed_at = used.claimed_at || excluded.claimed_at,
                    level = excluded.level, level_at = excluded.level_at, used_at = excluded.used_at;
            END IF;
            RETURN QUERY UPDATE {schema}.live_jobs
            SET state = 'executing', attempt = attempt + 1, attempted_at = began, node = claiming
            WHERE ctid = ANY (picked)
            RETURNING *;
            free := free - cardinality(picked);
            taken := taken || new;
        END IF;
        EXIT WHEN NOT is_left;
        after := asked.looked_up_to;
    END LOOP;
    IF asked.concurrency IS NOT NULL OR asked.rate IS NOT NULL THEN
        UPDATE {schema}.limits
        SET jobs = CASE WHEN asked.concurrency IS NULL THEN '{}' ELSE busy || taken END,
            claimed_at = CASE WHEN asked.concurrency IS NULL THEN '{}'
                              ELSE busy_since || array_fill(began, ARRAY[cardinality(taken)]) END,
            level = CASE WHEN asked.rate IS NOT NULL THEN {schema}.level_after(
                asked.rate, asked.per, asked.burst, asked.level, asked.level_at, began, cardinality(taken)
            ) END,
            level_at = CASE WHEN asked.rate IS NULL THEN NULL
                            WHEN asked.burst IS NULL THEN {schema}.window_of(began, asked.per) ELSE began END,
            clock = asked.clock, last_key = asked.last_key, looked_up_to = asked.looked_up_to
        WHERE queue = %2$L AND cardinality(taken) > 0;
    END IF;
    IF cardinality(taken) = 0 OR asked.concurrency IS NULL AND asked.rate IS NULL THEN
        UPDATE {schema}.limits
        SET clock = asked.clock, last_key = asked.last_key, looked_up_to = asked.looked_up_to
        WHERE queue = %2$L AND (clock, last_key) <> (asked.clock, asked.last_key)
           OR queue = %2$L AND looked_up_to IS DISTINCT FROM asked.looked_up_to;
    END IF;
    IF asked.swept_at < began - interval '1 hour' THEN
        PERFORM {schema}.forget_keys(%2$L, asked.key_per);
    END IF;
END
$function$
    $format$, 'claim_of_' || md5(of_queue), of_queue, key, walk, alike, ready);
END
$$;

-- As before, with the function of now.
CREATE OR REPLACE FUNCTION {schema}.index_keys(of_queue text, path text[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    indexed text := 'live_jobs_keys_' || md5(of_queue);
BEGIN
    EXECUTE format('DROP INDEX IF EXISTS {schema}.%I', indexed);
    EXECUTE format('DROP FUNCTION IF EXISTS {schema}.%I', 'claim_of_' || md5(of_queue));
    IF path IS NULL THEN
        RETURN;
    END IF;
    EXECUTE format(
        'CREATE INDEX %I ON {schema}.live_jobs (({schema}.key_of(args, %L::text[]) COLLATE "C"), priority, scheduled_at, id) '
        'WHERE state = ''available'' AND queue = %L', indexed, path, of_queue);
    PERFORM {schema}.make_claim_of(of_queue, path);
END
$$;

DO $$
DECLARE
    before text;
BEGIN
    FOR before IN SELECT proname FROM pg_proc
                  WHERE pronamespace = '{schema}'::regnamespace AND proname ~ '^claim_(by_key|keys)_[0-9a-f]{32}$' LOOP
        EXECUTE format('DROP FUNCTION {schema}.%I', before);
    END LOOP;
END
$$;
DROP FUNCTION {schema}.make_claim_keys;
SELECT {schema}.make_claim_of(queue, path) FROM {schema}.limits WHERE path IS NOT NULL;
