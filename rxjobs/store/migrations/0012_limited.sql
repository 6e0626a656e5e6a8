-- Claims of a queue that is limited as a whole, in statements that begin sooner; those by keys see the step before.

-- As before, but that claims by keys are made by the function that is made for the queue.
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
    picked tid[];
    taken bigint[];
BEGIN
    SELECT * INTO asked FROM {schema}.limits AS limited WHERE limited.queue = of_queue FOR UPDATE;
    IF asked.path IS NOT NULL THEN
        BEGIN
            RETURN QUERY EXECUTE format('SELECT * FROM {schema}.%I($1, $2, $3, $4, $5)', 'claim_of_' || md5(of_queue))
            USING n, of_types, claiming, with_tags, with_args;
        EXCEPTION
            WHEN undefined_function OR internal_error THEN NULL;  -- it was made anew while this waited: the next claim sees it
        END;
        RETURN;
    END IF;
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
        CASE WHEN asked.rate IS NOT NULL THEN
            {schema}.may_start(asked.rate, asked.per, asked.burst, asked.level, asked.level_at, began)
        END
    ));
    IF free = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(ready.ctid), array_agg(ready.id) INTO picked, taken
    FROM (
        SELECT of_priority.ctid, of_priority.id
        FROM unnest(instants, ids) WITH ORDINALITY AS mark (scheduled_at, id, place)
        CROSS JOIN LATERAL (
            SELECT of_it.ctid, of_it.id
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
        ) AS of_priority
        LIMIT free
    ) AS ready;
    IF picked IS NULL THEN
        RETURN;
    END IF;
    UPDATE {schema}.limits AS limited
    SET jobs = CASE WHEN asked.concurrency IS NULL THEN '{}' ELSE busy || taken END,
        claimed_at = CASE WHEN asked.concurrency IS NULL THEN '{}'
                          ELSE busy_since || array_fill(began, ARRAY[cardinality(taken)]) END,
        level = CASE WHEN asked.rate IS NOT NULL THEN {schema}.level_after(
            asked.rate, asked.per, asked.burst, asked.level, asked.level_at, began, cardinality(taken)
        ) END,
        level_at = CASE WHEN asked.rate IS NULL THEN NULL
                        WHEN asked.burst IS NULL THEN {schema}.window_of(began, asked.per) ELSE began END
    WHERE limited.queue = of_queue;
    RETURN QUERY UPDATE {schema}.live_jobs AS job
    SET state = 'executing', attempt = job.attempt + 1, attempted_at = began, node = claiming
    WHERE job.ctid = ANY (picked)
    RETURNING *;
END
$$;
