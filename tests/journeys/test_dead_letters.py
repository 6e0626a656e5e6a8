"""Jobs that are discarded: what is kept with them, and who is told, whatever ends them."""

from __future__ import annotations

import asyncio

import rxjobs as rj
from rxjobs.events import JobDiscarded
from rxjobs.testing import fill
from tests.waiting import until

FAST = {"rxjobs_lease_seconds": 2, "rxjobs_heartbeat_seconds": 0.3, "rxjobs_rescue_seconds": 0.3, "rxjobs_poll_seconds": 0.3}


async def test_a_discarded_job_keeps_what_its_node_knew_and_the_listener_gets_it_with_every_error(connection, dsn):
    app = rj.App(dsn, node="node-a", poll_seconds=0.2)
    told: list[rj.Job] = []

    @app.job(name="bad", queue="mail", max_attempts=2, backoff=lambda attempt, error: 0.0)
    async def bad(text: str) -> None:
        raise ValueError(text)

    @app.on_dead_letter
    async def tell(job: rj.Job) -> None:
        told.append(job)

    await fill(connection, "of_nobody", 12, queue="mail")
    async with app.running():
        enqueued = await bad.enqueue(text="x" * 100)
        await until(lambda: told)
    [job] = told
    assert (job.id, job.state, job.args) == (enqueued.id, "discarded", {"text": "x" * 100})
    assert [(error["attempt"], error["type"]) for error in job.errors] == [(1, "ValueError"), (2, "ValueError")]
    assert set(job.errors[0]) == {"attempt", "type", "message", "traceback", "node", "at", "duration", "trace_id"}
    known = job.forensics
    assert known == (await row(dsn, job.id)).forensics
    assert known["node"] == "node-a"
    assert known["queue_depths"]["mail"]["ready"] == 12
    assert known["queue_depths"]["mail"]["oldest"] > 0
    assert known["memory"] > 1_000_000
    assert len(known["load"]) == 3
    assert known["cpus"] >= 1
    assert known["breaker"] == "closed"
    assert known["args_bytes"] == len('{"text":""}') + 100
    assert [(error["job"], error["attempt"], error["type"]) for error in known["recent_errors"]] == [
        (job.id, 2, "ValueError"), (job.id, 1, "ValueError"),
    ]  # fmt: skip
    assert "loop_delay" in known


async def row(dsn, id_):
    async with rj.App(dsn) as app:
        return await app.jobs.get(id_)


async def test_of_many_that_are_discarded_together_each_has_its_own_and_depths_are_looked_for_once(connection, dsn, monkeypatch):
    app = rj.App(dsn, poll_seconds=0.2)
    looks = 0

    @app.job(name="bad", max_attempts=1, breaker=None)
    async def bad(n: int) -> None:
        raise KeyError(n)

    async with app.running():
        look = app.store.ready_depths

        async def counted(*arguments):
            nonlocal looks
            looks += 1
            return await look(*arguments)

        monkeypatch.setattr(app.store, "ready_depths", counted)
        await app.enqueue_many([bad.new(n) for n in range(300)])
        await until(lambda: connection.fetchval("SELECT count(*) = 300 FROM rxjobs.finished_jobs WHERE state = 'discarded'"))
    assert looks <= 3  # once in ten seconds
    rows = await connection.fetch("SELECT forensics ->> 'args_bytes' AS bytes FROM rxjobs.finished_jobs ORDER BY id")
    assert [int(row["bytes"]) for row in rows] == [len(f'{{"n":{n}}}') for n in range(300)]


async def test_a_listener_that_blocks_delays_no_outcome_and_neither_does_a_table_that_cannot_be_looked_at(connection, dsn):
    app = rj.App(dsn, poll_seconds=0.2)

    @app.job(name="bad", max_attempts=1, breaker=None)
    async def bad(n: int) -> None:
        raise KeyError(n)

    @app.on_dead_letter(timeout=3600)
    async def hang(_: rj.Job) -> None:
        await asyncio.Event().wait()

    async with app.running():

        async def fails(*_: object) -> None:
            raise OSError("no route")

        app.store.ready_depths = fails
        await app.enqueue_many([bad.new(n) for n in range(300)])
        await until(lambda: connection.fetchval("SELECT count(*) = 300 FROM rxjobs.finished_jobs WHERE state = 'discarded'"))
    assert await connection.fetchval("SELECT bool_and(forensics -> 'queue_depths' = 'null') FROM rxjobs.finished_jobs")


async def test_a_job_whose_node_is_killed_at_its_last_attempt_has_what_the_leader_knows(connection, dsn, start):
    await until(lambda: connection.fetchval("SELECT now() - pg_postmaster_start_time() > interval '2 seconds'"))
    app = rj.App(
        dsn, node="leader", lease_seconds=2, heartbeat_seconds=0.3, rescue_seconds=0.3, poll_seconds=0.3, leader_seconds=0.9
    )
    told: list[rj.Job] = []
    discarded: list[JobDiscarded] = []
    app.on_dead_letter(told.append)
    app.events.subscribe(lambda event: discarded.append(event) if isinstance(event, JobDiscarded) else None)
    doomed = start(dsn, rxjobs_node="doomed", **FAST)
    await fill(connection, "work", 1, args={"seconds": 60.0})
    await connection.execute("UPDATE rxjobs.live_jobs SET max_attempts = 1")
    await until(lambda: doomed.lines("start"))
    await until(lambda: connection.fetchval("SELECT status IS NOT NULL FROM rxjobs.nodes WHERE label = 'doomed'"))
    doomed.process.kill()

    @app.job(name="other")
    async def other() -> None: ...

    async with app.running():
        await until(lambda: told)
    [job] = told
    assert [error["type"] for error in job.errors] == ["rxjobs.NodeLost"]
    known = job.forensics
    assert known["node"] == "leader"
    assert known["lost_node"]["label"] == "doomed"
    assert known["lost_node"]["memory"] > 1_000_000
    assert known["args_bytes"] == len('{"seconds": 60.0}')
    assert known["queue_depths"] == {"default": {"ready": 0, "oldest": None}}
    assert [event.job.id for event in discarded] == [job.id]


async def test_dead_letters_come_back_at_their_rate_and_run(connection, dsn):
    app = rj.App(dsn, poll_seconds=0.1)
    is_fixed = False

    @app.job(name="bad", max_attempts=1, breaker=None)
    async def bad(n: int) -> None:
        if not is_fixed:
            raise ValueError(n)

    async with app.running():
        await app.enqueue_many([bad.new(n) for n in range(20)])
        await until(lambda: connection.fetchval("SELECT count(*) = 20 FROM rxjobs.finished_jobs"))
        is_fixed = True
        assert await app.jobs.redrive(error="ValueError", rate=20) == 20
        await until(lambda: connection.fetchval("SELECT count(*) = 20 FROM rxjobs.finished_jobs WHERE state = 'completed'"))
    rows = await connection.fetch("SELECT scheduled_at, attempted_at, forensics, errors IS NOT NULL AS has_errors FROM rxjobs.jobs")
    due = sorted(row["scheduled_at"] for row in rows)
    assert (due[-1] - due[0]).total_seconds() == 0.95
    assert all(row["attempted_at"] >= row["scheduled_at"] and row["has_errors"] and row["forensics"] is None for row in rows)
