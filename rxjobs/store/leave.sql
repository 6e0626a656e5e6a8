-- Give up the lease of node $1, unless jobs are still claimed by it: those are freed when it runs out.
DELETE FROM {schema}.nodes
WHERE id = $1 AND NOT EXISTS (SELECT FROM {schema}.live_jobs WHERE node = $1 AND state = 'executing')
