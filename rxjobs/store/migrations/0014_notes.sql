-- Claims by keys, as the step `turns` has them, in fewer and smaller statements: who may claim is asked with the first look at the keys, what
-- is known of a key is written where it was found, and nothing is written of the queue where nothing has changed. What is kept, and where,
-- is as before, so that a claim that is under way and one by this function heed the same.

-- Where statistics are of a time at which a queue had no ready jobs, each index seems as good as another, and a claim that reads the whole
-- queue for each key takes seconds. So to work out a key seems dear, which only the index of keys spares, and a claim by keys sorts nothing
-- that comes in order from there.
ALTER FUNCTION {schema}.key_of(json, text[]) COST 10000;

-- Make for one queue what claims by key, up to n jobs: the queue and where its keys are must stand in the text, else the planner cannot see
-- that they belong to the index. It goes from key to key by the index, from the last to the first: before the first job of a key is what
-- was claimed of late. Where there are more than a hundred, it goes on where the claim before has ended. On the queue's clock a key may
-- have a job at each multiple of 1 / weight, and those of one moment have theirs one after the other: so that one number and one key say
-- how far all have come, and who had nothing to do has saved nothing. No more of a key run than are noted: as long as enough places are
-- left by that, nobody has to look up who of them still does.
CREATE OR REPLACE FUNCTION {schema}.make_claim_of(of_queue text, path text[]) RETURNS void LANGUAGE plpgsql
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
        WHERE place < 100
    )$walk$, key, ready);
    alike text := $alike$
        SELECT one.*, least(room, part_of_each + CASE WHEN (place - 1 - passed + k) % k < more THEN 1 ELSE 0 END) AS part
        FROM unnest(keys, rooms) WITH ORDINALITY AS one (key, room, place)
    $alike$;
    plan text := format($plan$EXISTS (
        SELECT FROM {schema}.nodes AS node
        WHERE node.id = claiming AND node.expires_at > began
          AND NOT EXISTS (
              SELECT FROM {schema}.queues AS control
              WHERE control.queue = %L AND control.node IN ('', node.label, node.id::text) AND control.paused_at IS NOT NULL
          )
    ), after IS NULL AND count(*) < 100,
    CASE WHEN after IS NULL AND count(*) < 100 THEN free / greatest(count(*), 1) ELSE greatest(1, free / 100) END,
    CASE WHEN after IS NULL AND count(*) < 100 THEN free %% greatest(count(*), 1) ELSE 0 END$plan$, of_queue);
    wants text := $wants$
        CASE WHEN asked.weights = '{}' THEN least(free, free * 2 ^ round / greatest(count(*), 1) + 2)::bigint ELSE free END,
        COALESCE(bool_or(running > 2 * counted + 100) OR min(asked.key_concurrency - running) < CASE
            WHEN asked.weights = '{}' THEN least(free, free * 2 ^ round / greatest(count(*), 1) + 2)::bigint ELSE free END, false)
    $wants$;
    used text := format($used$
        LEFT JOIN LATERAL (
            -- a limit, so that each is looked up: there may be far more
            SELECT ctid AS note, cardinality(jobs) AS running, counted, level, level_at
            FROM {schema}.limit_keys AS of_it WHERE of_it.queue = %L AND of_it.key = walk.key LIMIT 1
        ) AS used ON true
    $used$, of_queue);
    notes text := $notes$
        SELECT place, notes[place] AS note, started, new[up_to - started + 1:up_to] AS ids
        FROM (
            SELECT CASE WHEN ends IS NULL THEN number ELSE places[number] END AS place, started,
                   COALESCE(ends[number], number * started) AS up_to
            FROM unnest(starts) WITH ORDINALITY AS one (started, number)
        ) AS one
    $notes$;
BEGIN
    EXECUTE format($format$
CREATE OR REPLACE FUNCTION {schema}.%1$I(n bigint, of_types text[], claiming uuid, with_tags text[], with_args text)
RETURNS SETOF {schema}.live_jobs LANGUAGE plpgsql
SET enable_bitmapscan = off SET enable_seqscan = off SET enable_sort = off SET plan_cache_mode = force_generic_plan AS $function$
#variable_conflict use_column
DECLARE
    asked {schema}.limits;
    began timestamptz;
    busy bigint[];
    busy_since timestamptz[];
    free bigint := n;
    is_limited boolean;  -- also as a whole
    is_noted boolean;  -- whether something has to be known of each key
    may_claim boolean;
    after text;
    keys text[];  -- those that have ready jobs, and how many may start of each
    k integer;
    rooms bigint[];
    levels float8[];  -- how many may start of each by its rate alone
    window_began timestamptz;  -- of a bucket: now
    is_over boolean;  -- so that what starts would in truth do so in the next one
    notes tid[];  -- where what is known of them is: nobody else changes it as long as the row of the queue is locked
    starts bigint[];  -- how many are claimed of those at `places`, and where their ids end in `new`: NULL where each has as many
    ends bigint[];
    noted bigint;
    are_new boolean;  -- all that were not found
    passed integer;  -- how many of them had what is theirs at the clock's moment
    wanted bigint;  -- as many as a claim may want of one
    is_short boolean;  -- of places, or what is noted is long
    is_looked_up boolean;  -- who of them runs
    are_all boolean;  -- otherwise they have their turns as they are looked at
    part_of_each bigint;
    more integer;  -- how many of them get one more than the others
    picked tid[];
    new bigint[];
    places integer[];
    are_alike boolean;  -- all of one priority and weight, and in the order of their keys
    is_exact boolean;  -- whether each has given just its part
    turn float8;
    is_left boolean;
    taken bigint[];
    has_moved boolean;  -- how far the keys have come
BEGIN
    SELECT * INTO asked FROM {schema}.limits WHERE queue = %2$L FOR UPDATE;
    began := clock_timestamp();
    IF asked.queue IS NULL THEN
        RETURN;
    END IF;
    is_limited := asked.concurrency IS NOT NULL OR asked.rate IS NOT NULL;
    IF is_limited THEN
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
    IF asked.key_rate IS NOT NULL THEN
        window_began := began;
        is_over := false;
        IF asked.key_burst IS NULL THEN
            window_began := {schema}.window_of(began, asked.key_per);
            is_over := {schema}.may_start(asked.key_rate, asked.key_per, NULL, 0, NULL, began) = 0;
        END IF;
    END IF;
    after := asked.looked_up_to;
    FOR round IN 1..10 LOOP
        EXIT WHEN free = 0;
        IF NOT is_noted THEN
            WITH RECURSIVE %4$s
            SELECT array_agg(key), array_fill(1000000::bigint, ARRAY[count(*)::integer]), count(*),
                   count(*) FILTER (WHERE key >= asked.last_key), %7$s
            INTO keys, rooms, k, passed, may_claim, are_all, part_of_each, more
            FROM walk;
        ELSE
            is_looked_up := false;
            LOOP
                IF asked.key_rate IS NULL THEN
                    WITH RECURSIVE %4$s
                    SELECT array_agg(walk.key), count(*), count(*) FILTER (WHERE walk.key >= asked.last_key), array_agg(used.note),
                           array_agg((asked.key_concurrency - COALESCE(used.running, 0))::bigint),
                           %10$s, %7$s
                    INTO keys, k, passed, notes, rooms, wanted, is_short, may_claim, are_all, part_of_each, more
                    FROM walk %9$s;
                ELSE
                    WITH RECURSIVE %4$s
                    SELECT array_agg(key), count(*), count(*) FILTER (WHERE key >= asked.last_key), array_agg(note), array_agg(may_start),
                           array_agg(least(
                               CASE WHEN is_over THEN 0 ELSE floor(may_start) END, 1000000, asked.key_concurrency - running
                           )::bigint),
                           %10$s, %7$s
                    INTO keys, k, passed, notes, levels, rooms, wanted, is_short, may_claim, are_all, part_of_each, more
                    FROM (
                        SELECT walk.key, used.note, COALESCE(used.running, 0) AS running, used.counted,
                               CASE WHEN asked.key_burst IS NULL THEN
                                   asked.key_rate - CASE WHEN used.level_at = window_began THEN used.level ELSE 0 END
                               ELSE {schema}.tokens(
                                   asked.key_rate, asked.key_per, asked.key_burst, used.level, used.level_at, began
                               ) END AS may_start
                        FROM walk %9$s
                    ) AS one;
                END IF;
                EXIT WHEN is_looked_up OR NOT is_short;
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
                is_looked_up := true;
            END LOOP;
        END IF;
        IF NOT may_claim THEN
            RETURN;
        END IF;
        IF round = 1 AND asked.weights = '{}' AND free >= k AND k > 0 THEN
            SELECT array_agg(job.ctid), array_agg(job.id), array_agg(place), min(priority) = max(priority),
                   count(*) = k * part_of_each + more
            INTO picked, new, places, are_alike, is_exact
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
        ELSE
            are_alike := false;
        END IF;
        IF are_alike THEN
            is_left := true;
            IF more > 0 OR NOT are_all THEN
                has_moved := true;
                asked.last_key := CASE WHEN are_all THEN keys[(passed + more - 1) %% k + 1] ELSE keys[k] END;
                asked.looked_up_to := keys[100];
            END IF;
        ELSE
            is_exact := false;
            has_moved := true;
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
                asked.looked_up_to := CASE WHEN cardinality(picked) = free THEN asked.last_key ELSE keys[100] END;
                asked.clock := asked.clock + CASE WHEN asked.looked_up_to IS NULL THEN part_of_each ELSE 0 END;
            END IF;
            asked.clock := asked.clock - CASE WHEN asked.clock < 1e6 THEN 0 ELSE 1e6 END;
            is_left := is_left OR NOT are_all;
        END IF;
        IF picked IS NOT NULL THEN
            IF is_noted THEN
                IF is_exact AND more = 0 THEN
                    starts := array_fill(part_of_each, ARRAY[k]);
                    ends := NULL;
                ELSE
                    IF NOT are_alike THEN
                        SELECT array_agg(id ORDER BY place) INTO new FROM unnest(new, places) AS one (id, place);
                    END IF;
                    SELECT array_agg(place ORDER BY place), array_agg(started ORDER BY place), array_agg(up_to ORDER BY place)
                    INTO places, starts, ends
                    FROM (
                        SELECT place, count(*) AS started, sum(count(*)) OVER (ORDER BY place) AS up_to
                        FROM unnest(places) AS one (place)
                        GROUP BY place
                    ) AS parts;
                END IF;
                IF asked.key_rate IS NULL THEN
                    UPDATE {schema}.limit_keys AS used
                    SET jobs = used.jobs || ids, claimed_at = used.claimed_at || array_fill(began, ARRAY[started::integer]), used_at = began
                    FROM (%8$s) AS one
                    WHERE used.ctid = one.note;
                ELSE
                    UPDATE {schema}.limit_keys AS used
                    SET jobs = CASE WHEN asked.key_concurrency IS NULL THEN '{}' ELSE used.jobs || ids END,
                        claimed_at = CASE WHEN asked.key_concurrency IS NULL THEN '{}'
                                          ELSE used.claimed_at || array_fill(began, ARRAY[started::integer]) END,
                        level = CASE WHEN asked.key_burst IS NULL THEN asked.key_rate - levels[place] + started
                                     ELSE levels[place] - started END,
                        level_at = window_began,
                        used_at = began
                    FROM (%8$s) AS one
                    WHERE used.ctid = one.note;
                END IF;
                GET DIAGNOSTICS noted = ROW_COUNT;
                IF noted < cardinality(starts) THEN
                    are_new := noted = (SELECT count(note) FROM (%8$s) AS one);
                    INSERT INTO {schema}.limit_keys AS used (queue, key, jobs, claimed_at, level, level_at, used_at)
                    SELECT %2$L, keys[place],
                           CASE WHEN asked.key_concurrency IS NULL THEN '{}' ELSE ids END,
                           CASE WHEN asked.key_concurrency IS NULL THEN '{}' ELSE array_fill(began, ARRAY[started::integer]) END,
                           CASE WHEN asked.key_burst IS NULL THEN asked.key_rate - levels[place] + started ELSE levels[place] - started END,
                           window_began, began
                    FROM (%8$s) AS one
                    WHERE one.note IS NULL OR NOT are_new
                    ON CONFLICT (queue, key) DO UPDATE
                    SET jobs = used.jobs || excluded.jobs, claimed_at = used.claimed_at || excluded.claimed_at,
                        level = excluded.level, level_at = excluded.level_at, used_at = excluded.used_at;
                END IF;
            END IF;
            RETURN QUERY UPDATE {schema}.live_jobs
            SET state = 'executing', attempt = attempt + 1, attempted_at = began, node = claiming
            WHERE ctid = ANY (picked)
            RETURNING *;
            free := free - cardinality(picked);
            IF is_limited THEN
                taken := taken || new;
            END IF;
        END IF;
        EXIT WHEN free = 0 OR NOT is_left;
        after := asked.looked_up_to;
    END LOOP;
    IF taken IS NOT NULL THEN
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
        WHERE queue = %2$L;
    ELSIF has_moved THEN
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
    $format$, 'claim_of_' || md5(of_queue), of_queue, key, walk, alike, ready, plan, notes, used, wants);
END
$$;

SELECT {schema}.make_claim_of(queue, path) FROM {schema}.limits WHERE path IS NOT NULL;
