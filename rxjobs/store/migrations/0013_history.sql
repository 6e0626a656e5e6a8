-- A history in partitions, for those who ask for it: finished jobs by day, week or month, of which the old ones are dropped whole.

-- One row where finished_jobs is partitioned, and none where it is not.
CREATE TABLE {schema}.history (
    is_partitioned boolean PRIMARY KEY DEFAULT true CHECK (is_partitioned),
    every text NOT NULL CHECK (every IN ('day', 'week', 'month')),
    since timestamptz NOT NULL  -- what finished before is in one table still, and pruned row by row
);

-- The partitions of finished_jobs that have rows: what each is for, and from when until when (NULL: no border).
CREATE FUNCTION {schema}.history_parts()
RETURNS TABLE (part oid, name text, kind text, lower timestamptz, upper timestamptz) LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET "TimeZone" = 'UTC' SET "DateStyle" = 'ISO' AS $$
    SELECT leaf.oid, leaf.relname::text,
           CASE leaf.relname WHEN 'finished_jobs_before' THEN 'before' WHEN 'finished_jobs_discarded' THEN 'dead letters'
                             WHEN 'finished_jobs_other' THEN 'other' ELSE 'period' END,
           (regexp_match(pg_get_expr(leaf.relpartbound, leaf.oid), 'FROM \(''([^'']+)''\)'))[1]::timestamptz,
           (regexp_match(pg_get_expr(leaf.relpartbound, leaf.oid), 'TO \(''([^'']+)''\)'))[1]::timestamptz
    FROM pg_partition_tree('{schema}.finished_jobs'::regclass) AS tree
    JOIN pg_class AS leaf ON leaf.oid = tree.relid
    WHERE tree.isleaf AND tree.level > 0
$$;

-- How many jobs are in a partition of finished_jobs: counted where it is small, and else as of its last vacuum.
CREATE FUNCTION {schema}.count_part(of_part oid) RETURNS bigint LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    counted bigint;
BEGIN
    IF pg_relation_size(of_part) > 4194304 THEN
        RETURN (SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = of_part);
    END IF;
    EXECUTE format('SELECT count(*) FROM %s', (SELECT part::regclass FROM {schema}.history_parts() WHERE part = of_part)) INTO counted;
    RETURN counted;
END
$$;

-- Make the table of the next period, unless it is there for all that comes within a week; gives its name, or NULL. What has landed
-- elsewhere for want of it is moved there, unless that is so much that others would wait for it.
CREATE FUNCTION {schema}.make_period() RETURNS text LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' SET "TimeZone" = 'UTC' SET "DateStyle" = 'ISO' AS $$
DECLARE
    soon CONSTANT timestamptz := now() + interval '7 days';
    most CONSTANT integer := 10000;
    asked {schema}.history;
    lowest timestamptz;
    highest timestamptz;
    made text;
BEGIN
    SELECT * INTO asked FROM {schema}.history;
    IF asked.since IS NULL OR soon <= (SELECT max(upper) FROM {schema}.history_parts() WHERE kind = 'period') THEN
        RETURN NULL;
    END IF;
    LOCK TABLE ONLY {schema}.finished_jobs_ended IN SHARE UPDATE EXCLUSIVE MODE;  -- one at a time
    SELECT max(upper) INTO lowest FROM {schema}.history_parts() WHERE kind = 'period';
    lowest := greatest(lowest, asked.since, date_trunc(asked.every, now()));
    LOOP
        EXIT WHEN lowest >= soon;
        highest := date_trunc(asked.every, lowest) + ('1 ' || asked.every)::interval;
        EXIT WHEN most >= (
            SELECT count(*)
            FROM (SELECT FROM {schema}.finished_jobs_other WHERE finished_at >= lowest AND finished_at < highest LIMIT most + 1) AS landed
        );
        lowest := highest;  -- those stay where they are, and are pruned row by row
    END LOOP;
    IF lowest >= soon THEN
        RETURN NULL;
    END IF;
    made := 'finished_jobs_' || to_char(lowest, CASE WHEN lowest = date_trunc('day', lowest) THEN 'YYYYMMDD' ELSE 'YYYYMMDD"t"HH24MISS' END);
    EXECUTE format('CREATE TABLE {schema}.%I (LIKE {schema}.finished_jobs_ended INCLUDING ALL, PRIMARY KEY (id))', made);
    LOCK TABLE {schema}.finished_jobs_other IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('WITH landed AS (DELETE FROM {schema}.finished_jobs_other WHERE finished_at >= $1 AND finished_at < $2 RETURNING *) '
                   'INSERT INTO {schema}.%I SELECT * FROM landed', made) USING lowest, highest;
    EXECUTE format('ALTER TABLE {schema}.finished_jobs_ended ATTACH PARTITION {schema}.%I FOR VALUES FROM (%L) TO (%L)',
                   made, lowest, highest);
    RETURN made;
END
$$;

-- Partition the history, from an instant on; what finished before stays in the table that it is in, which becomes a partition.
-- Nothing is moved, and nothing read where a CHECK finished_jobs_until says already that all rows are of before. Dead letters are kept
-- for longer than others, so they have a table of their own, and none of the periods' tables has to stay for them.
-- To be called by the owner of the schema, with a lock_timeout.
CREATE FUNCTION {schema}.partition_history(period text, from_when timestamptz) RETURNS timestamptz LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET "TimeZone" = 'UTC' SET "DateStyle" = 'ISO' AS $$
DECLARE
    before regclass;
    shown text;
    indexes text[];
    others text;
    since timestamptz := from_when;
    one record;
BEGIN
    shown := pg_get_viewdef('{schema}.jobs'::regclass);
    -- the view first, as those who read it do, so that nobody waits in a circle
    EXECUTE 'CREATE OR REPLACE VIEW {schema}.jobs AS ' || shown;
    LOCK TABLE ONLY {schema}.finished_jobs IN ACCESS EXCLUSIVE MODE;
    before := '{schema}.finished_jobs'::regclass;
    IF EXISTS (SELECT FROM {schema}.history) THEN
        RETURN (SELECT history.since FROM {schema}.history);
    END IF;
    IF from_when > now() AND NOT EXISTS (
        SELECT FROM pg_constraint WHERE conrelid = before AND conname = 'finished_jobs_until' AND convalidated
    ) THEN
        RAISE EXCEPTION 'somebody else partitions finished_jobs at the same time' USING ERRCODE = 'object_in_use';
    END IF;
    SELECT string_agg(DISTINCT what, ', ') INTO others
    FROM (
        SELECT 'view ' || rule.ev_class::regclass AS what
        FROM pg_depend AS needs
        JOIN pg_rewrite AS rule ON rule.oid = needs.objid
        WHERE needs.classid = 'pg_rewrite'::regclass AND needs.refclassid = 'pg_class'::regclass AND needs.refobjid = before
          AND rule.ev_class <> '{schema}.jobs'::regclass
        UNION ALL
        SELECT 'foreign key ' || conname || ' of ' || conrelid::regclass FROM pg_constraint WHERE confrelid = before
        UNION ALL
        SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgrelid = before AND NOT tgisinternal
        UNION ALL
        SELECT 'policy ' || polname FROM pg_policy WHERE polrelid = before
        UNION ALL
        SELECT 'publication ' || pubname
        FROM pg_publication_rel AS published
        JOIN pg_publication ON pg_publication.oid = published.prpubid
        WHERE published.prrelid = before
    ) AS theirs;
    IF others IS NOT NULL THEN
        RAISE EXCEPTION 'finished_jobs is used by what would not find it any more: %', others USING ERRCODE = 'dependent_objects_still_exist';
    END IF;
    IF since IS NULL THEN
        SELECT date_trunc('second', greatest(clock_timestamp(), max(finished_at))) + interval '1 second' INTO since
        FROM {schema}.finished_jobs;
    END IF;
    SELECT array_agg(pg_get_indexdef(indexrelid)) INTO indexes FROM pg_index WHERE indrelid = before AND NOT indisprimary;
    ALTER TABLE {schema}.finished_jobs RENAME TO finished_jobs_before;
    FOR one IN SELECT indexrelid::regclass AS index, relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
               WHERE indrelid = before AND NOT indisprimary LOOP
        EXECUTE format('ALTER INDEX %s RENAME TO %I', one.index, regexp_replace(one.relname, '^(finished_jobs)?', 'finished_jobs_before'));
    END LOOP;
    CREATE TABLE {schema}.finished_jobs (LIKE {schema}.finished_jobs_before INCLUDING ALL EXCLUDING INDEXES EXCLUDING STATISTICS)
        PARTITION BY RANGE (finished_at);
    ALTER TABLE {schema}.finished_jobs DROP CONSTRAINT IF EXISTS finished_jobs_until;
    FOR place IN 1 .. COALESCE(cardinality(indexes), 0) LOOP
        EXECUTE indexes[place];
    END LOOP;
    EXECUTE format('CREATE TABLE {schema}.finished_jobs_since PARTITION OF {schema}.finished_jobs '
                   'FOR VALUES FROM (%L) TO (MAXVALUE) PARTITION BY LIST (state)', since);
    CREATE TABLE {schema}.finished_jobs_discarded PARTITION OF {schema}.finished_jobs_since (PRIMARY KEY (id))
        FOR VALUES IN ('discarded');
    CREATE TABLE {schema}.finished_jobs_ended PARTITION OF {schema}.finished_jobs_since
        FOR VALUES IN ('completed', 'cancelled') PARTITION BY RANGE (finished_at);
    CREATE TABLE {schema}.finished_jobs_other PARTITION OF {schema}.finished_jobs_ended (PRIMARY KEY (id)) DEFAULT;
    EXECUTE format('ALTER TABLE {schema}.finished_jobs ATTACH PARTITION {schema}.finished_jobs_before FOR VALUES FROM (MINVALUE) TO (%L)',
                   since);
    ALTER TABLE {schema}.finished_jobs_before DROP CONSTRAINT IF EXISTS finished_jobs_until;
    FOR one IN
        SELECT made.name, owner.rolname AS owner
        FROM pg_class JOIN pg_roles AS owner ON owner.oid = relowner,
             unnest(ARRAY['finished_jobs', 'finished_jobs_since', 'finished_jobs_discarded', 'finished_jobs_ended',
                          'finished_jobs_other']) AS made (name)
        WHERE pg_class.oid = before AND owner.rolname <> current_user
    LOOP
        EXECUTE format('ALTER TABLE {schema}.%I OWNER TO %I', one.name, one.owner);
    END LOOP;
    FOR one IN
        SELECT granted.*, relowner, COALESCE(quote_ident(role.rolname), 'PUBLIC') AS role
        FROM pg_class
        CROSS JOIN LATERAL aclexplode(relacl) AS granted
        LEFT JOIN pg_roles AS role ON role.oid = granted.grantee
        WHERE pg_class.oid = before AND granted.grantee <> relowner
    LOOP
        EXECUTE format('GRANT %s ON {schema}.finished_jobs TO %s%s', one.privilege_type, one.role,
                       CASE WHEN one.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
    EXECUTE 'CREATE OR REPLACE VIEW {schema}.jobs AS ' || shown;
    INSERT INTO {schema}.history (every, since) VALUES (period, since);
    WHILE {schema}.make_period() IS NOT NULL LOOP
    END LOOP;
    RETURN since;
END
$$;

-- Do the next thing that a partitioned history needs, while a node leads in a term: make a period that comes, drop one that is over,
-- empty what is older than all that is kept, or delete a thousand of what is old and in no period. Ages in seconds. Gives what was done and to which table, and how many jobs of which state
-- went with it; nothing where nothing is left to do. Who waits for it is who asks for the same tables, and never for long.
CREATE FUNCTION {schema}.tend_history(leader uuid, of_term bigint, keep float8, keep_discarded float8)
RETURNS TABLE (done text, name text, state text, jobs bigint) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' SET "TimeZone" = 'UTC' SET "DateStyle" = 'ISO' AS $$
DECLARE
    one record;
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.leaders AS led WHERE led.node = leader AND led.term = of_term AND led.expires_at > now()) THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM {schema}.history) THEN
        -- whoever began to partition it was killed, and no job could end any more once that instant comes
        FOR one IN SELECT conname FROM pg_constraint
                   WHERE conrelid = '{schema}.finished_jobs'::regclass AND conname = 'finished_jobs_until'
                     AND substring(pg_get_constraintdef(oid) FROM '''([^'']+)''')::timestamptz < now() + interval '1 day' LOOP
            ALTER TABLE {schema}.finished_jobs DROP CONSTRAINT finished_jobs_until;
        END LOOP;
        RETURN;
    END IF;

    name := {schema}.make_period();
    IF name IS NOT NULL THEN
        done := 'made';
        jobs := 0;
        RETURN NEXT;
        RETURN;
    END IF;

    FOR one IN
        SELECT parts.part, parts.name, parts.kind, parts.upper <= now() - greatest(keep, keep_discarded) * interval '1 second' AS is_over,
               pg_relation_size(parts.part) AS bytes, pg_class.reltuples
        FROM {schema}.history_parts() AS parts JOIN pg_class ON pg_class.oid = parts.part
        WHERE parts.kind IN ('period', 'before') AND parts.upper <= now() - keep * interval '1 second'
        ORDER BY parts.upper
    LOOP
        CONTINUE WHEN one.kind = 'before' AND (NOT one.is_over OR one.bytes = 0);
        done := CASE one.kind WHEN 'before' THEN 'emptied' ELSE 'dropped' END;
        name := one.name;
        -- to read a large one only to count it would take longest of all: it is as many as were there when it was last vacuumed
        IF one.reltuples >= 0 AND one.bytes > 67108864 THEN
            state := 'completed';
            jobs := one.reltuples;
            RETURN NEXT;
        ELSE
            RETURN QUERY EXECUTE format('SELECT %L, %L, part.state::text, count(*) FROM {schema}.%I AS part GROUP BY part.state',
                                        done, name, name);
            IF NOT FOUND THEN
                jobs := 0;
                RETURN NEXT;
            END IF;
        END IF;
        EXECUTE format(CASE one.kind WHEN 'before' THEN 'TRUNCATE {schema}.%I' ELSE 'DROP TABLE {schema}.%I' END, name);
        RETURN;
    END LOOP;

    RETURN QUERY
    WITH ended AS (
        DELETE FROM {schema}.finished_jobs_other AS other
        WHERE other.ctid = ANY (ARRAY(
            SELECT old.ctid
            FROM {schema}.finished_jobs_other AS old
            WHERE old.finished_at < now() - keep * interval '1 second'
            LIMIT 1000
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING other.tableoid::regclass AS part, other.state
    ), dead AS (
        DELETE FROM {schema}.finished_jobs_discarded AS letter
        WHERE letter.ctid = ANY (ARRAY(
            SELECT old.ctid
            FROM {schema}.finished_jobs_discarded AS old
            WHERE old.finished_at < now() - keep_discarded * interval '1 second' AND old.state = 'discarded'
            ORDER BY old.finished_at
            LIMIT 1000
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING letter.tableoid::regclass AS part, letter.state
    )
    SELECT 'pruned', relname::text, gone.state::text, count(*)
    FROM (SELECT * FROM ended UNION ALL SELECT * FROM dead) AS gone
    JOIN pg_class ON pg_class.oid = gone.part
    GROUP BY relname, gone.state;
END
$$;
