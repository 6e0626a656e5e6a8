-- Who stands for the keys $1 now, with periods $2 (s, or NULL), other than jobs $3 (one a key; 0 for none): place from 1, id, state.
SELECT given.place, twin.id, twin.state::text AS state
FROM unnest($1::text[], $2::float8[], $3::bigint[]) WITH ORDINALITY AS given (key, period, own, place)
CROSS JOIN LATERAL (
    SELECT CASE WHEN period IS NULL THEN ARRAY[key]
                ELSE ARRAY[key || ':' || floor(extract(epoch FROM now()) / period),
                           key || ':' || floor(extract(epoch FROM now()) / period) - 1] END AS keys
) AS spelled
CROSS JOIN LATERAL (
    SELECT id, state, inserted_at
    FROM {schema}.live_jobs
    WHERE unique_key = ANY (keys) AND state = ANY (unique_states)
    UNION ALL
    SELECT id, state, inserted_at
    FROM {schema}.finished_jobs
    WHERE unique_key = ANY (keys) AND state = ANY (unique_states)
    ORDER BY inserted_at
) AS twin
WHERE twin.id <> given.own AND (period IS NULL OR twin.inserted_at > now() - period * interval '1 second')
