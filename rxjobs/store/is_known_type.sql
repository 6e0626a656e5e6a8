-- Whether a living node takes jobs of type $1 from any queue, or its breaker was ever entered.
SELECT EXISTS (SELECT FROM {schema}.breakers WHERE type = $1)
    OR EXISTS (
        SELECT
        FROM {schema}.nodes, jsonb_each(serves) AS of (queue, types)
        WHERE expires_at > now() AND types ? $1
    ) AS is_known
