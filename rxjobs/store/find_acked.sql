-- Which of the jobs $2, claimed for attempts $3 at instants $4, node $1 has written down already: an ack whose answer was lost is sent
-- again. An attempt that was given back has the number of the next one, so that the instant is compared too.
SELECT id
FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[]) AS given (id, attempt, attempted_at)
WHERE EXISTS (SELECT FROM {schema}.finished_jobs AS job
              WHERE job.id = given.id AND job.node = $1 AND job.attempt = given.attempt AND job.attempted_at = given.attempted_at)
   OR EXISTS (SELECT FROM {schema}.live_jobs AS job
              WHERE job.id = given.id AND job.node = $1 AND job.state <> 'executing' AND job.attempted_at = given.attempted_at
                AND job.attempt BETWEEN given.attempt - 1 AND given.attempt)
