"""What befell others when ids outgrew 32 bits, or what a JavaScript number holds. See docs/faults.md."""

from __future__ import annotations

import asyncio
import json
import sys
from uuid import uuid4

import asyncpg
import pytest

import rxjobs as rj
from tests.waiting import until


@pytest.mark.parametrize("border", [2**31, 2**53], ids=["2^31", "2^53"])
async def test_jobs_live_their_whole_life_across_a_border_of_numbers(dsn, border):
    """As graphile-worker v0.17.3, pgqueuer#676: errors from the job on whose id no longer fitted a cast to 32 bits."""
    app = rj.App(dsn, migrate=True, poll_seconds=0.2)
    ran = list[int]()

    @app.job(max_attempts=1)
    async def work(ends: str) -> None:
        job = rj.current_job()
        ran.append(job.id)
        match ends:
            case "badly":
                raise ValueError("badly")
            case "later":
                raise rj.Snooze(0.05) if ran.count(job.id) == 1 else rj.Complete()

    async with app:
        connection = await asyncpg.connect(dsn)
        await connection.execute(f"ALTER TABLE rxjobs.live_jobs ALTER COLUMN id RESTART WITH {border - 5}")
        ends = ["well"] * 4 + ["badly", "later"] * 2 + ["well"] * 4
        ids = [enqueued.id for enqueued in await app.enqueue_many(work.new(ends=end) for end in ends)]
        assert ids == list(range(border - 5, border + 7))
        waiting = [(await work.options(delay=600).enqueue("well")).id for _ in range(2)]
        assert await app.jobs.cancel(waiting) == 2
        async with app.running():
            await until(lambda: counts(app, completed=10, discarded=2, cancelled=2))
            assert await app.jobs.retry(ids[4]) == 1
            await until(lambda: ran.count(ids[4]) == 2)
            await until(lambda: counts(app, completed=10, discarded=2, cancelled=2))
        assert sorted(set(ran)) == ids
        assert [job.id for job in await app.jobs.list(after=border + 1, limit=4)] == [border, border - 1, border - 2, border - 3]
        shown = json.loads(await said("jobs", "show", str(border + 1), "--dsn", dsn, "--json"))
        assert shown["id"] == border + 1
        found = await app.jobs.get(border + 1)
        assert found is not None
        assert found.id == border + 1
        assert await app.jobs.delete([waiting[0], ids[0]]) == 2
        leader = uuid4()
        term = await app.store.lead(leader, 60)
        assert term is not None
        assert (await app.store.prune_jobs(0, 100, leader, term)).states.total() == 12
        assert await app.jobs.count() == {}
        await connection.close()


async def counts(app: rj.App, **expected: int) -> bool:
    return await app.jobs.count() == expected


async def said(*arguments: str) -> bytes:
    """What the command prints."""
    command = await asyncio.create_subprocess_exec(sys.executable, "-m", "rxjobs", *arguments, stdout=asyncio.subprocess.PIPE)
    out, _ = await command.communicate()
    assert command.returncode == 0
    return out
