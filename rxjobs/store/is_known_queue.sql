-- Whether queue $1 holds unfinished jobs, has a living node that takes jobs from it, or was asked anything of.
SELECT EXISTS (SELECT FROM {schema}.queues WHERE queue = $1)
    OR EXISTS (SELECT FROM {schema}.nodes WHERE serves ? $1 AND expires_at > now())
    OR EXISTS (SELECT FROM {schema}.live_jobs WHERE queue = $1) AS is_known
