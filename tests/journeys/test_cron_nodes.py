"""Cron across worker processes: one row a slot, whoever leads, and what is asked of an entry holds on all of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import rxjobs as rj
from tests.waiting import until

FAST = {"rxjobs_lease_seconds": 3, "rxjobs_heartbeat_seconds": 0.5, "rxjobs_leader_seconds": 1, "rxjobs_poll_seconds": 0.3}


async def slots(connection, since: datetime) -> list[datetime]:
    rows = await connection.fetch(
        "SELECT scheduled_at FROM rxjobs.jobs WHERE type = 'work' AND scheduled_at > $1 ORDER BY scheduled_at", since
    )
    return [row["scheduled_at"] for row in rows]


def are_each_second_once(found: list[datetime]) -> bool:
    return all(second - first == timedelta(seconds=1) for first, second in pairwise(found))


async def test_two_processes_make_each_slot_once_and_stop_and_go_on_as_they_are_asked_also_when_the_leader_is_killed(
    connection, dsn, start
):
    workers = [start(dsn, **FAST) for _ in range(2)]
    await until(lambda: connection.fetchval("SELECT count(*) = 2 FROM rxjobs.nodes WHERE serves <> '{}'"))
    app, begun = rj.App(dsn), await connection.fetchval("SELECT now()")

    @app.job(name="work")
    async def work(seconds: float = 0.0) -> None: ...

    async with app:
        assert await app.cron.add("secondly", "* * * * * *", work.new())
        await until(lambda: slots(connection, begun))

        assert await app.cron.pause("secondly")
        (entry,) = await app.cron.list()
        # a second passes in which it would be due
        await until(lambda: connection.fetchval("SELECT now() > $1::timestamptz + interval '1.1 seconds'", entry.paused_at))
        resumed = await connection.fetchval("SELECT now()")
        assert await app.cron.resume("secondly")
        assert await until(lambda: slots(connection, resumed))

        leads = "SELECT pid FROM rxjobs.leaders JOIN rxjobs.nodes ON id = node WHERE leaders.expires_at > now()"
        pid = await until(lambda: connection.fetchval(leads))
        (leader,) = [worker for worker in workers if worker.process.pid == pid]
        leader.process.kill()
        killed = await connection.fetchval("SELECT now()")
        await until(lambda: slots(connection, killed))
        assert await app.cron.pause("secondly")

    before, after = await slots(connection, begun), await slots(connection, resumed)
    while_paused = [slot for slot in before if entry.paused_at < slot < resumed]
    assert while_paused == []
    assert are_each_second_once(after)
    assert are_each_second_once([slot for slot in before if slot < entry.paused_at])
    # what the one had begun when it was killed is rescued
    await until(lambda: connection.fetchval("SELECT NOT EXISTS (SELECT FROM rxjobs.live_jobs)"))
    ids = {row["id"] for row in await connection.fetch("SELECT id FROM rxjobs.jobs")}
    assert len(ids) == len(before)
    assert {id_ for worker in workers for id_ in worker.ids("end")} == ids
