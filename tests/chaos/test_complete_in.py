"""Jobs that complete in their own transactions take effect exactly once, whatever moment their process is killed at."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos import faults
from tests.chaos.loaded import shown

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]

ENDED = "SELECT count(*) FROM rxjobs.finished_jobs WHERE state = 'completed'"
EFFECTS = "SELECT count(*) AS rows, count(DISTINCT key) AS keys FROM public.effects"


@pytest.mark.parametrize(
    ("jobs", "kills"),
    [pytest.param(150, 12, id="150 jobs"), pytest.param(1000, 80, marks=pytest.mark.long, id="1,000 jobs")],
)
async def test_under_kills_at_random_phases_each_job_leaves_exactly_one_row(ground, random, jobs, kills):
    await ground.execute("CREATE TABLE public.effects (key text NOT NULL)")
    await ground.execute(
        "INSERT INTO rxjobs.live_jobs (type, args) "
        "SELECT 'once', json_build_object('key', n::text, 'seconds', random() * 0.1) FROM generate_series(1, $1::integer) AS n",
        jobs,
    )
    await ground.start(3, environ={"SLOTS": "4"})
    for _ in range(kills):
        await faults.kill(ground, random)
        await asyncio.sleep(random.uniform(0.0, 0.3))
    before_the_end = await ground.value(ENDED)
    await ground.drained(seconds=60 + jobs / 10)
    assert await ground.value(ENDED) == jobs
    (effects,) = await ground.rows(EFFECTS)
    assert tuple(effects) == (jobs, jobs)
    twice = await ground.value("SELECT count(*) FROM rxjobs.finished_jobs WHERE attempt > 1")
    shown("exactly once", jobs=jobs, killed=len(ground.died), run_again=twice, ended_while_killed=before_the_end)
    assert twice > 0
