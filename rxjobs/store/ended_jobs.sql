-- Of the jobs $1 those that have ended, each with its state, type and result, and those that are not there, without.
SELECT asked.id, job.state::text AS state, job.type, job.result
FROM unnest($1::bigint[]) AS asked (id)
LEFT JOIN {schema}.finished_jobs AS job ON job.id = asked.id
WHERE job.id IS NOT NULL OR NOT EXISTS (SELECT FROM {schema}.live_jobs AS live WHERE live.id = asked.id)
