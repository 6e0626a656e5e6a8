"""A job's completion in the job's own transaction, over every kind of connection."""

import asyncio
import subprocess
import sys

import asyncpg
import psycopg
import pytest

import rxjobs as rj
from rxjobs import events
from tests.store.test_joining import KINDS
from tests.waiting import until

FAST = {"poll_seconds": 0.3}
EFFECTS = "SELECT count(*) FROM effects"


@pytest.fixture
async def app(dsn, connection):
    await connection.execute("CREATE TABLE effects (job bigint NOT NULL)")
    return rj.App(dsn, **FAST)


def heard(running):
    found: list[object] = []
    running.events.subscribe(found.append)
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_job_wrote_and_its_completion_are_committed_together(app, connection, kind):
    @app.job(name="pay", record=True, breaker=None)
    async def pay() -> str:
        job = rj.current_job()
        async with KINDS[kind](app.dsn) as (joined, execute, commit, rollback):
            await execute(f"INSERT INTO effects VALUES ({job.id})")
            await rj.complete_in(joined, result="paid")
            await (rollback if job.attempt == 1 else commit)()
        if job.attempt == 1:
            raise rj.Retry(delay=0)
        return "not kept any more"

    async with app.running() as running:
        told = heard(running)
        enqueued = await pay.enqueue()
        assert await enqueued.result(timeout=20) == "paid"
        await until(lambda: not running.held_ids)
        assert await connection.fetchval(EFFECTS) == 1
        job = await app.jobs.get(enqueued.id)
        assert (job.state, job.attempt) == ("completed", 2)
        assert not [event for event in told if isinstance(event, events.JobStale)]
        assert [event.outcome for event in told if isinstance(event, events.JobStopped)] == [rj.Complete("not kept any more")]


async def test_a_plain_function_completes_in_its_thread_without_awaiting(app, connection):
    @app.job(name="pay")
    def pay() -> None:
        with psycopg.connect(app.dsn) as ours:
            ours.execute("INSERT INTO effects VALUES (%s)", [rj.current_job().id])
            rj.complete_in(ours)

    async with app.running():
        assert await app.perform(pay.new(), timeout=20) is None
        assert await connection.fetchval(EFFECTS) == 1


DJANGO = """
import asyncio
import sys
import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

import rxjobs as rj

dsn = conninfo_to_dict(sys.argv[1])  # of an embedded server the host is a folder
settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": dsn["dbname"], "USER": dsn["user"], "PASSWORD": dsn.get("password", ""),
    "HOST": dsn["host"], "PORT": dsn.get("port", ""),
}})
django.setup()
from django.db import connection, transaction

app = rj.App(sys.argv[1], poll_seconds=0.3)


@app.job(name="pay")
def pay():
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("INSERT INTO effects VALUES (%s)", [rj.current_job().id])
        rj.complete_in(connection)
    connection.close()


async def main():
    async with app.running():
        await app.perform(pay.new(), timeout=30)

asyncio.run(main())
"""


async def test_djangos_connection_takes_it_too(dsn, connection, tmp_path):
    """In a process of its own, since Django is set up once in a process."""
    await connection.execute("CREATE TABLE effects (job bigint NOT NULL)")
    program = tmp_path / "program.py"
    program.write_text(DJANGO)
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-W", "error", program, dsn], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert await connection.fetchval(EFFECTS) == 1
    assert "not this node's any more" not in ran.stderr


elsewhere = rj.App("postgresql://nowhere")


@elsewhere.job(name="pay")
def pay_in_a_child(dsn: str) -> None:
    with psycopg.connect(dsn) as ours:
        ours.execute("INSERT INTO effects VALUES (%s)", [rj.current_job().id])
        rj.complete_in(ours)


async def test_a_child_process_completes_by_itself(app, connection):
    pay = app.job(name="pay", executor=rj.in_processes(1))(pay_in_a_child.function)
    async with app.running() as running:
        told = heard(running)
        assert await app.perform(pay.new(app.dsn), timeout=30) is None
        await until(lambda: not running.held_ids)
        assert not [event for event in told if isinstance(event, events.JobStale)]
    assert await connection.fetchval(EFFECTS) == 1


async def test_a_claim_that_is_not_current_undoes_what_was_written(app, connection):
    begun, go_on, caught = asyncio.Event(), asyncio.Event(), []

    @app.job(name="pay")
    async def pay() -> None:
        begun.set()
        ours = await asyncpg.connect(app.dsn)
        try:
            async with ours.transaction():
                await ours.execute("INSERT INTO effects VALUES ($1)", rj.current_job().id)
                await go_on.wait()
                await rj.complete_in(ours)
        except rj.StaleClaim as error:
            caught.append(str(error))
            raise
        finally:
            await ours.close()

    async with app.running() as running:
        enqueued = await pay.enqueue()
        await begun.wait()
        await connection.execute("UPDATE rxjobs.live_jobs SET attempt = 2, node = gen_random_uuid() WHERE id = $1", enqueued.id)
        go_on.set()
        await until(lambda: not running.held_ids)
        assert "attempt 1 of job" in caught[0]
        assert "roll its transaction back" in caught[0]
        assert await connection.fetchval(EFFECTS) == 0
        assert (await app.jobs.get(enqueued.id)).state == "executing"


async def test_a_connection_in_no_transaction_is_refused_and_one_that_is_none_too(app, connection):
    @app.job(name="pay", max_attempts=1)
    async def pay(kind: str) -> None:
        ours = await asyncpg.connect(app.dsn)
        try:
            await rj.complete_in({"autocommit": ours, "none": None, "word": "connection"}[kind])
        finally:
            await ours.close()

    async with app.running():
        for kind, why in [("autocommit", "in a transaction"), ("none", "in a transaction"), ("word", "connection= takes")]:
            with pytest.raises(rj.JobFailed, match=why):
                await app.perform(pay.new(kind), timeout=20)
    with pytest.raises(rj.NotOpen, match="outside of a job"):
        rj.complete_in(connection)


async def test_a_thread_is_told_that_it_cannot_use_an_asynchronous_connection(app, connection):
    @app.job(name="pay", max_attempts=1)
    def pay() -> None:
        rj.complete_in(connection)

    async with app.running():
        transaction = connection.transaction()
        await transaction.start()
        with pytest.raises(rj.JobFailed, match="await complete_in"):
            await app.perform(pay.new(), timeout=20)
        await transaction.rollback()
