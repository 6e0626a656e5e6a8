-- Enter the breaker of job type $1, closed, where it is not there yet.
INSERT INTO {schema}.breakers (type)
VALUES ($1)
ON CONFLICT (type) DO NOTHING
