-- Ask for $3 more probes of job type $1 for node $2, which has $4 out, where $5 may be out or have gone well across all nodes.
-- A breaker that was open for its time goes half open with it. Returns how it stands, and how many were given: nobody has more out
-- together, since whoever asks meanwhile waits for the row. Probes of nodes whose lease ran out count no more.
-- One that was opened in what is the future by now, since the server's clock was set, has waited long enough.
UPDATE {schema}.breakers AS b
SET (version, state, moved_at, successes, probing) = (
    SELECT b.version + (this.state <> b.state)::int, this.state,
           CASE WHEN this.state <> b.state THEN now() ELSE b.moved_at END,
           this.successes,
           others.probing || array_fill($2::uuid, ARRAY[
               $4::int + CASE
                   WHEN this.state = 'half-open'
                   THEN greatest(0, least($3::int, $5::int - this.successes - cardinality(others.probing) - $4::int))
                   ELSE 0
               END::int
           ])
    FROM (
        SELECT CASE WHEN is_over THEN 'half-open' ELSE b.state END AS state, CASE WHEN is_over THEN 0 ELSE b.successes END AS successes
        FROM (
            SELECT b.state = 'open' AND NOT b.is_by_hand
                   AND NOT (now() >= b.opened_at AND now() < b.opened_at + b.reset_timeout * interval '1 second') AS is_over
        ) AS opened
    ) AS this
    CROSS JOIN LATERAL (
        SELECT ARRAY(
            SELECT probe.node
            FROM unnest(b.probing) AS probe (node)
            WHERE probe.node <> $2 AND EXISTS (SELECT FROM {schema}.nodes WHERE id = probe.node AND expires_at > now())
        ) AS probing
    ) AS others
)
WHERE b.type = $1
RETURNING b.type, b.version, b.state, b.is_by_hand, b.failures, b.successes, cardinality(b.probing) AS probing,
          extract(epoch FROM b.opened_at + b.reset_timeout * interval '1 second' - now())::float8 AS wait,
          (b.calls + b.calls_before)::bigint AS calls, (b.failed + b.failed_before)::bigint AS failed,
          cardinality(array_positions(b.probing, $2)) - $4::int AS given
