-- How far job $1 says that it has come, and whether it has ended. Returns nothing where it is not there.
SELECT progress, false AS has_ended FROM {schema}.live_jobs WHERE id = $1::bigint
UNION ALL
SELECT progress, true FROM {schema}.finished_jobs WHERE id = $1::bigint
