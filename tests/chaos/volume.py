"""Very many jobs: what they cost in memory, and in time."""

from __future__ import annotations

import os
import random
import time
from uuid import uuid4

import psutil

from tests.chaos import checker
from tests.chaos.enqueuer import definitions, enqueuing
from tests.chaos.faults import put
from tests.chaos.ground import Ground
from tests.chaos.ledger import now
from tests.waiting import until

QUEUES = 100
SPREAD = """
WITH due AS (
    SELECT extract(epoch FROM scheduled_at - attempted_at)::float8 AS delay, date_trunc('second', scheduled_at) AS second,
           pg_column_size(errors)::float8 AS bytes
    FROM rxjobs.live_jobs
    WHERE type = 'storm' AND state = 'retryable' AND attempt = 1
)
SELECT min(delay) AS least, max(delay) AS most, max(bytes) AS error_bytes,
       (SELECT max(jobs)::float8 FROM (SELECT count(*) AS jobs FROM due GROUP BY second) AS seconds) AS in_one_second
FROM due
"""


async def memory_between(ground: Ground, few: int, many: int, *, seconds: float) -> float:
    """Row 18: how much more memory a worker takes once it has run `many` jobs than when it had run `few`, MB."""
    (worker,) = await ground.start(queues="default")
    process = psutil.Process(worker.pid)
    began = time.monotonic()
    for count in (few, many - few):
        await ground.execute("INSERT INTO rxjobs.live_jobs (type) SELECT 'nothing' FROM generate_series(1, $1::integer)", count)
        await until(lambda: ground.value("SELECT NOT EXISTS (SELECT FROM rxjobs.live_jobs)"), seconds=seconds, every=0.25)
        ground.figures["memory, MB"].append(process.memory_info().rss / 1e6)
    ground.figures["jobs a second"].append(many / (time.monotonic() - began))
    before, after = ground.figures["memory, MB"]
    return after - before


async def claim_times(ground: Ground, count: int) -> tuple[float, float]:
    """F45: the median and the 99th percentile of claims of 20 from a backlog of so many jobs, ms."""
    await ground.execute("TRUNCATE rxjobs.live_jobs")
    await ground.execute(
        "INSERT INTO rxjobs.live_jobs (type, queue, priority, state, scheduled_at) "
        f"SELECT 'nothing', 'queue-' || n % {QUEUES}, 1 + n / {QUEUES} % 9, "
        "(CASE WHEN later THEN 'scheduled' ELSE 'available' END)::rxjobs.job_state, "
        "now() + (CASE WHEN later THEN interval '1 hour' ELSE interval '-1 hour' END) * random() "
        f"FROM generate_series(1, $1::integer) AS n, LATERAL (SELECT n / {QUEUES} % 2 = 0) AS at (later)",
        count,
    )
    await ground.execute("VACUUM ANALYZE rxjobs.live_jobs")
    took = []
    async with definitions(ground.dsn) as app:
        node, types = uuid4(), ["nothing", "work"]
        await app.store.take_lease(node, "", os.getpid(), 600)
        for _ in range(500):
            queue = f"queue-{random.randrange(QUEUES)}"
            began = time.perf_counter()
            await app.store.fetch_jobs(queue, 20, types, node)
            took.append((time.perf_counter() - began) * 1e3)
    took.sort()
    return checker.percentile(took, 0.5), checker.percentile(took, 0.99)


async def claims_beside_pruning(ground: Ground, ended: int) -> tuple[tuple[float, float], tuple[float, float], int]:
    """Row 44: `claim_times` before and while so many jobs that have ended are pruned; and how many of those were left then."""
    before = await claim_times(ground, 10_000)
    await ground.execute(
        "INSERT INTO rxjobs.finished_jobs (id, inserted_at, scheduled_at, finished_at, state, attempt, max_attempts, priority, "
        "type, queue, args) SELECT -n, old, old, old, 'completed', 1, 20, 0, 'nothing', 'default', '{}' "
        "FROM generate_series(1, $1::integer) AS n, LATERAL (SELECT now() - interval '2 days') AS at (old)",
        ended,
    )
    await ground.execute("VACUUM ANALYZE rxjobs.finished_jobs")
    await ground.execute("DROP TRIGGER terminal_rows_never_change ON rxjobs.finished_jobs")
    await ground.start(queues="default")
    left = "SELECT count(*) FROM rxjobs.finished_jobs"
    await until(lambda: ground.value(f"SELECT ({left}) < {ended}"), seconds=120, every=0.25)
    during = await claim_times(ground, 10_000)
    return before, during, await ground.value(left)


async def start_of_an_urgent_job(ground: Ground) -> float:
    """F45: how long a job of the first priority waits for its start beside that backlog, in seconds."""
    await ground.execute("UPDATE rxjobs.live_jobs SET queue = 'default' WHERE queue = 'queue-1'")
    await ground.start(queues="default")
    id_ = await put(ground, "work", key="urgent")  # the others are of priorities 1 to 9
    put_at = time.monotonic()
    await ground.running(id_)
    return time.monotonic() - put_at


async def storm(ground: Ground, count: int, *, seconds: float) -> dict[str, float]:
    """F46: so many jobs fail at once, beside a queue that is well; how far their next attempts are spread, and what it costs."""
    await ground.start(2, environ={"RXJOBS_DSN": ground.dsn, "SLOTS": "200"})
    async with enqueuing(ground.dsn, f"healthy/{now()}", queue="healthy", rate=10.0):
        await ground.started(5, queue="healthy")
        before = now()
        await ground.execute("INSERT INTO rxjobs.live_jobs (type) SELECT 'storm' FROM generate_series(1, $1::integer)", count)
        left = "SELECT NOT EXISTS (SELECT FROM rxjobs.live_jobs WHERE type = 'storm' AND errors IS NULL)"
        await until(lambda: ground.value(left), seconds=seconds, every=0.25)
        healthy = checker.throughput(ground.attempts, "healthy", before, now())
    (found,) = await ground.rows(SPREAD)
    return {**found, "healthy": healthy}
