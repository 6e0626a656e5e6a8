-- Which of the jobs $2 with attempts $3 node $1 has written down already: an ack whose answer was lost is sent again.
SELECT id
FROM unnest($2::bigint[], $3::integer[]) AS given (id, attempt)
WHERE EXISTS (SELECT FROM {schema}.finished_jobs AS job WHERE job.id = given.id AND job.node = $1 AND job.attempt = given.attempt)
   OR EXISTS (SELECT FROM {schema}.live_jobs AS job
              WHERE job.id = given.id AND job.node = $1 AND job.state <> 'executing'
                AND job.attempt BETWEEN given.attempt - 1 AND given.attempt)
