-- Jobs from plain SQL: other languages and triggers enqueue as rxjobs does, in their own transactions.

-- The job types that nodes know, with what their jobs get unless something else is said.
CREATE TABLE {schema}.job_types (
    name text PRIMARY KEY,
    queue text NOT NULL,
    priority smallint NOT NULL,
    max_attempts integer NOT NULL,
    tags text[] NOT NULL DEFAULT '{}',
    meta jsonb NOT NULL DEFAULT '{}',
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE FUNCTION {schema}.enqueue(
    type text,
    args jsonb DEFAULT '{}',
    queue text DEFAULT NULL,  -- NULL, here and below: as the job type says, if a node that knows it has ever run
    priority integer DEFAULT NULL,
    max_attempts integer DEFAULT NULL,
    delay interval DEFAULT NULL,
    scheduled_at timestamptz DEFAULT NULL,
    tags text[] DEFAULT NULL,
    meta jsonb DEFAULT NULL,
    unique_key text DEFAULT NULL  -- at most one job of a type and key that has not ended
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    known {schema}.job_types;
    due timestamptz := COALESCE(enqueue.scheduled_at, now() + COALESCE(delay, interval '0'));
    key text := 'sql:' || type || ':' || unique_key;
    job bigint;
BEGIN
    IF type IS NULL OR type !~ '^[A-Za-z_][A-Za-z0-9_.:<>-]{0,127}$' THEN
        RAISE invalid_parameter_value USING MESSAGE = format('a job type''s name is letters, digits and . : _ -, at most 128, not %L', type);
    END IF;
    SELECT * INTO known FROM {schema}.job_types AS one WHERE one.name = enqueue.type;
    queue := COALESCE(queue, known.queue, 'default');
    priority := COALESCE(priority, known.priority, 0);
    max_attempts := COALESCE(max_attempts, known.max_attempts, 20);
    IF queue !~ '^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}$' THEN
        RAISE invalid_parameter_value USING MESSAGE = format('a queue''s name is letters, digits and . : / _ -, at most 128, not %L', queue);
    END IF;
    IF args IS NULL OR jsonb_typeof(args) <> 'object' THEN
        RAISE invalid_parameter_value USING MESSAGE = format('args is a JSON object of the job''s arguments by name, not %L', args);
    END IF;
    IF octet_length(args::text) > 1024 * 1024 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('args take %s bytes, and may take 1 MiB', octet_length(args::text));
    END IF;
    IF priority NOT BETWEEN 0 AND 9 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('priority is a whole number from 0 to 9, not %s', priority);
    END IF;
    IF max_attempts NOT BETWEEN 1 AND 1000 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('max_attempts is a whole number from 1 to 1000, not %s', max_attempts);
    END IF;
    IF delay IS NOT NULL AND scheduled_at IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = 'give delay or scheduled_at, not both';
    END IF;
    IF due NOT BETWEEN '1900-01-02 00:00+00' AND now() + interval '3660 days' THEN
        RAISE invalid_parameter_value USING MESSAGE = format('a job is due within ten years, and in no century before the last, not at %s', due);
    END IF;
    IF unique_key IS NOT NULL AND length(unique_key) NOT BETWEEN 1 AND 200 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('unique_key has 1 to 200 characters, not %s', length(unique_key));
    END IF;
    IF COALESCE(array_length(tags, 1), 0) > 32 OR EXISTS (SELECT FROM unnest(tags) AS tag WHERE tag IS NULL OR length(tag) NOT BETWEEN 1 AND 64) THEN
        RAISE invalid_parameter_value USING MESSAGE = format('at most 32 tags of 1 to 64 characters, not %L', tags);
    END IF;
    LOOP
        INSERT INTO {schema}.live_jobs AS new (type, queue, args, priority, max_attempts, scheduled_at, state, tags, meta, unique_key,
                                               unique_states)
        VALUES (type, queue, args::json, priority, max_attempts, due,
                (CASE WHEN due <= now() THEN 'available' ELSE 'scheduled' END)::{schema}.job_state,
                NULLIF(COALESCE(tags, known.tags), '{}'), NULLIF(COALESCE(known.meta, '{}') || COALESCE(meta, '{}'), '{}'), key,
                CASE WHEN key IS NOT NULL THEN '{scheduled,available,executing,retryable,held}'::{schema}.job_state[] END)
        ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND state = ANY (unique_states) DO NOTHING
        RETURNING id INTO job;
        EXIT WHEN job IS NOT NULL;
        SELECT id INTO job FROM {schema}.live_jobs AS twin
        WHERE twin.unique_key = key AND twin.state = ANY (twin.unique_states);
        EXIT WHEN job IS NOT NULL;  -- else it has ended meanwhile: once more
    END LOOP;
    IF due <= now() THEN
        PERFORM pg_notify(trim('"' FROM '{schema}'), queue) WHERE pg_notification_queue_usage() < 0.5;
    END IF;
    RETURN job;
END
$$;

COMMENT ON FUNCTION {schema}.enqueue IS 'Enqueue a job of rxjobs in this transaction; gives its id, or that of the one that has its unique key.';
