"""Jobs from plain SQL: `SELECT rxjobs.enqueue(...)`, with the checks and the defaults of rxjobs' own."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

import rxjobs as rj
from tests.store.ground import a_shared_database, emptied


@pytest.fixture(scope="module")
def ground(databases):
    yield from a_shared_database(databases)


@pytest.fixture
async def app(ground):
    app = rj.App(await emptied(ground))

    @app.job(name="send", queue="mail", priority=3, max_attempts=7, tags=["a"], meta={"team": "x"})
    async def send(user_id: int = 0) -> None: ...

    async with app:
        yield app


@pytest.fixture
async def sql(app):
    connection = await asyncpg.connect(app.dsn)
    yield lambda call, *args: connection.fetchval(f"SELECT rxjobs.enqueue({call})", *args)
    await connection.close()


async def test_a_type_that_a_node_knows_gives_what_nothing_is_said_of(app, sql):
    async with app.running(app.source("other").pipe(rj.execute(), rj.ack())):
        job = await app.jobs.get(await sql("""'send', '{"user_id": 7}'"""))
        assert (job.queue, job.priority, job.max_attempts, job.tags, job.meta) == ("mail", 3, 7, ["a"], {"team": "x"})
        assert (job.state, job.args, job.attempt) == ("available", {"user_id": 7}, 0)
        other = "'send', queue => 'slow', priority => 9, max_attempts => 1, tags => '{b}', delay => '1 hour'"
        job = await app.jobs.get(await sql(other))
        assert (job.queue, job.priority, job.max_attempts, job.tags, job.meta) == ("slow", 9, 1, ["b"], {"team": "x"})
        assert job.state == "scheduled"
        job = await app.jobs.get(await sql("'unknown'"))
        assert (job.queue, job.priority, job.max_attempts) == ("default", 0, 20)


async def test_it_wakes_whoever_waits(app, sql):
    ran, patient = asyncio.Event(), rj.App(app.dsn, poll_seconds=60)

    @patient.job(name="ring")
    async def ring() -> None:
        ran.set()

    async with patient.running():
        await asyncio.sleep(0.3)  # whatever is asked at a start is answered
        await sql("'ring'")
        await asyncio.wait_for(ran.wait(), 20)


async def test_it_is_part_of_the_transaction(app):
    connection = await asyncpg.connect(app.dsn)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("SELECT rxjobs.enqueue('send')")
    await transaction.rollback()
    await connection.close()
    assert await app.jobs.count() == {}


async def test_a_trigger_enqueues(app, sql):
    connection = await asyncpg.connect(app.dsn)
    await connection.execute(
        """CREATE TABLE public.users (id int);
           CREATE FUNCTION public.welcome() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN
               PERFORM rxjobs.enqueue('send', jsonb_build_object('user_id', NEW.id));
               RETURN NEW;
           END $$;
           CREATE TRIGGER welcome AFTER INSERT ON public.users FOR EACH ROW EXECUTE FUNCTION public.welcome();
           INSERT INTO public.users SELECT generate_series(1, 3);"""
    )
    assert sorted(job.args["user_id"] for job in await app.jobs.list()) == [1, 2, 3]
    await connection.execute("DROP TABLE public.users; DROP FUNCTION public.welcome")
    await connection.close()


async def test_of_a_key_there_is_one(app, sql):
    connections = [await asyncpg.connect(app.dsn) for _ in range(10)]
    call = "SELECT rxjobs.enqueue('send', unique_key => 'user 7')"
    ids = await asyncio.gather(*(connection.fetchval(call) for connection in connections))
    assert len(set(ids)) == 1
    await app.jobs.cancel(ids[0])
    assert await connections[0].fetchval(call) != ids[0]
    for connection in connections:
        await connection.close()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("NULL", "a job type's name is letters"),
        ("'no such name'", "a job type's name is letters, .* not 'no such name'"),
        ("'send', '[7]'", "args is a JSON object of the job's arguments by name, not '\\[7\\]'"),
        ("'send', NULL", "args is a JSON object"),
        ("'send', jsonb_build_object('a', repeat('x', 1048576))", "args take 10485\\d\\d bytes"),
        ("'send', queue => 'a b'", "a queue's name is letters, .* not 'a b'"),
        ("'send', priority => 10", "priority is a whole number from 0 to 9, not 10"),
        ("'send', max_attempts => 0", "max_attempts is a whole number from 1 to 1000, not 0"),
        ("'send', delay => '1 s', scheduled_at => now()", "give delay or scheduled_at, not both"),
        ("'send', scheduled_at => 'infinity'", "due within ten years"),
        ("'send', tags => '{\"\"}'", "at most 32 tags of 1 to 64 characters"),
        ("'send', unique_key => ''", "unique_key has 1 to 200 characters, not 0"),
    ],
)
async def test_what_no_app_would_enqueue_is_refused(app, sql, call, words):
    with pytest.raises(asyncpg.InvalidParameterValueError, match=words):
        await sql(call)
    assert await app.jobs.count() == {}
