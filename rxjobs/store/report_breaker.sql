-- Tell what node $2 has seen of job type $1 since it told last, when the row had version $3: that it has opened ('open') or closed its
-- own breaker in $4 (NULL: neither), the former $5 seconds ago; $6 failures in a row, after a success if $7; $8 probes that went well;
-- $9 calls, of which $10 failed; and that it has $11 probes out. It opens after $12 failures in a row, or where at least $14 calls in
-- $15 seconds failed at a rate of $13 (NULL: whatever the rate), for $16 seconds, and closes after $17 good probes. Where it has
-- opened or closed, channel $18 is told (NULL: nowhere). Returns how it stands; no row where it was never entered.
-- What was seen of another version says nothing about this one.
WITH told AS (
    UPDATE {schema}.breakers AS b
    SET (
        version, state, is_by_hand, moved_at, opened_at, reset_timeout, failures, successes, probing,
        half_seconds, half, calls, failed, calls_before, failed_before
    ) = (
        SELECT b.version + (after.state <> b.state)::int, after.state, b.is_by_hand AND after.state = 'open',
               CASE WHEN after.state <> b.state THEN now() ELSE b.moved_at END,
               CASE WHEN after.state = 'open' AND b.state <> 'open' THEN now() - $5::float8 * interval '1 second' ELSE b.opened_at END,
               $16::float8,
               CASE WHEN after.state = 'closed' AND b.state = 'closed' THEN seen.failures ELSE 0 END,
               CASE WHEN after.state = 'half-open' THEN seen.successes ELSE 0 END,
               array_remove(b.probing, $2::uuid) || array_fill($2::uuid, ARRAY[$11::int]),
               $15::float8 / 2,
               seen.half,
               CASE WHEN after.state = 'closed' AND b.state = 'closed' THEN seen.calls ELSE 0 END,
               CASE WHEN after.state = 'closed' AND b.state = 'closed' THEN seen.failed ELSE 0 END,
               CASE WHEN after.state = 'closed' AND b.state = 'closed' THEN seen.calls_before ELSE 0 END,
               CASE WHEN after.state = 'closed' AND b.state = 'closed' THEN seen.failed_before ELSE 0 END
        FROM (
            SELECT b.version = $3::bigint AS is_current,
                   b.state = 'closed' AND (b.version = $3::bigint OR $3::bigint = 0) AS counts,
                   floor(extract(epoch FROM now()) / ($15::float8 / 2))::bigint AS half
        ) AS this
        CROSS JOIN LATERAL (
            SELECT this.half,
                   CASE WHEN this.counts THEN $6::bigint + CASE WHEN $7::boolean THEN 0 ELSE b.failures END ELSE b.failures END AS failures,
                   b.successes + CASE WHEN this.is_current THEN $8::bigint ELSE 0 END AS successes,
                   CASE WHEN b.half = this.half THEN b.calls ELSE 0 END + CASE WHEN this.counts THEN $9::bigint ELSE 0 END AS calls,
                   CASE WHEN b.half = this.half THEN b.failed ELSE 0 END + CASE WHEN this.counts THEN $10::bigint ELSE 0 END AS failed,
                   CASE b.half WHEN this.half THEN b.calls_before WHEN this.half - 1 THEN b.calls ELSE 0 END AS calls_before,
                   CASE b.half WHEN this.half THEN b.failed_before WHEN this.half - 1 THEN b.failed ELSE 0 END AS failed_before
        ) AS seen
        CROSS JOIN LATERAL (
            SELECT CASE
                WHEN b.state = 'closed' AND (
                    this.is_current AND $4::text = 'open'
                    OR seen.failures >= $12::bigint
                    OR seen.calls + seen.calls_before >= $14::bigint
                    AND seen.failed + seen.failed_before >= $13::float8 * (seen.calls + seen.calls_before)
                ) THEN 'open'
                WHEN b.state = 'half-open' AND this.is_current AND $4::text = 'open' THEN 'open'
                WHEN b.state = 'half-open' AND seen.successes >= $17::bigint THEN 'closed'
                WHEN NOT b.is_by_hand AND this.is_current AND $4::text = 'closed' THEN 'closed'
                ELSE b.state
            END AS state
        ) AS after
    )
    WHERE b.type = $1
    RETURNING b.type, b.version, b.state, b.is_by_hand, b.failures, b.successes, cardinality(b.probing) AS probing,
              extract(epoch FROM b.opened_at + b.reset_timeout * interval '1 second' - now())::float8 AS wait,
              (b.calls + b.calls_before)::bigint AS calls, (b.failed + b.failed_before)::bigint AS failed,
              b.moved_at = now() AND b.state <> 'half-open' AS has_moved
), notified AS (
    SELECT pg_notify($18, '!')
    FROM told
    WHERE told.has_moved AND $18 IS NOT NULL AND (SELECT pg_notification_queue_usage()) < 0.5
)
SELECT type, version, state, is_by_hand, failures, successes, probing, wait, calls, failed,
       (SELECT count(*) FROM notified) AS told
FROM told
