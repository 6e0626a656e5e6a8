"""Jobs that are enqueued in the transactions of other libraries: there once it is committed, never if it is rolled back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import rxjobs as rj
from tests.store.ground import a_shared_database, emptied


@pytest.fixture(scope="module")
def ground(databases):
    yield from a_shared_database(databases)


@pytest.fixture
async def app(ground):
    async with rj.App(await emptied(ground)) as app:
        yield app


@pytest.fixture
def work(app):
    @app.job(name="work", tags=["a"], meta={"b": 1})
    async def work(n: int = 0) -> None: ...

    return work


@pytest.fixture
def unique(app):
    @app.job(name="unique", unique=rj.Unique(on_conflict="raise"))
    async def unique(n: int = 0) -> None: ...

    return unique


@asynccontextmanager
async def of_asyncpg(dsn):
    connection = await asyncpg.connect(dsn)
    await connection.execute("BEGIN")
    yield connection, connection.execute, *(partial(connection.execute, f"{end}; BEGIN") for end in ("COMMIT", "ROLLBACK"))
    await connection.close()


@asynccontextmanager
async def of_psycopg(dsn):
    async with await psycopg.AsyncConnection.connect(dsn, row_factory=dict_row) as connection:
        yield connection, connection.execute, connection.commit, connection.rollback


def in_a_coroutine(function):
    async def call(*args):
        return function(*args)

    return call


@asynccontextmanager
async def of_psycopg_sync(dsn):
    with psycopg.connect(dsn) as connection:
        yield connection, *map(in_a_coroutine, (connection.execute, connection.commit, connection.rollback))


def url(dsn, driver):
    return urlsplit(dsn)._replace(scheme=f"postgresql+{driver}").geturl()


@asynccontextmanager
async def of_an_async_engine(dsn, driver):
    engine = create_async_engine(url(dsn, driver))
    async with engine.connect() as connection:
        yield connection, lambda sql: connection.execute(text(sql)), connection.commit, connection.rollback
    await engine.dispose()


@asynccontextmanager
async def of_an_async_session(dsn, driver):
    engine = create_async_engine(url(dsn, driver))
    async with AsyncSession(engine) as session:
        yield session, lambda sql: session.execute(text(sql)), session.commit, session.rollback
    await engine.dispose()


@asynccontextmanager
async def of_an_engine(dsn):
    engine = create_engine(url(dsn, "psycopg"))
    with engine.connect() as connection:
        calls = (lambda sql: connection.execute(text(sql))), connection.commit, connection.rollback
        yield connection, *map(in_a_coroutine, calls)
    engine.dispose()


@asynccontextmanager
async def of_a_session(dsn):
    engine = create_engine(url(dsn, "psycopg"))
    with Session(engine) as session:
        calls = (lambda sql: session.execute(text(sql))), session.commit, session.rollback
        yield session, *map(in_a_coroutine, calls)
    engine.dispose()


KINDS = {
    "asyncpg": of_asyncpg,
    "psycopg, async": of_psycopg,
    "psycopg, sync": of_psycopg_sync,
    "SQLAlchemy's AsyncConnection over asyncpg": lambda dsn: of_an_async_engine(dsn, "asyncpg"),
    "SQLAlchemy's AsyncConnection over psycopg": lambda dsn: of_an_async_engine(dsn, "psycopg"),
    "SQLAlchemy's AsyncSession over asyncpg": lambda dsn: of_an_async_session(dsn, "asyncpg"),
    "SQLAlchemy's AsyncSession over psycopg": lambda dsn: of_an_async_session(dsn, "psycopg"),
    "SQLAlchemy's Connection": of_an_engine,
    "SQLAlchemy's Session": of_a_session,
}


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_committed_is_there_and_what_is_rolled_back_never_was(app, work, kind):
    async with KINDS[kind](app.dsn) as (connection, _, commit, rollback):
        enqueued = await app.enqueue(work.options(delay=3600, priority=3).new(n=1), connection)
        many = await app.enqueue_many([work.new(n=n) for n in range(2, 5)], connection)
        assert await app.jobs.list() == []  # nobody sees them before
        await commit()
        jobs = {job.id: job for job in await app.jobs.list()}
        assert [jobs[one.id].args["n"] for one in (enqueued, *many)] == [1, 2, 3, 4]
        first = jobs[enqueued.id]
        assert (first.state, first.priority, first.tags, first.meta) == ("scheduled", 3, ["a"], {"b": 1})
        await app.enqueue(work.new(n=5), connection)
        await rollback()
        assert len(await app.jobs.list()) == 4


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_part_of_what_else_is_done_there(app, work, kind):
    async with KINDS[kind](app.dsn) as (connection, execute, commit, rollback):
        await execute("CREATE TABLE IF NOT EXISTS public.orders (n int)")
        await execute("TRUNCATE public.orders")
        await commit()
        for end, count in [(rollback, 0), (commit, 1)]:
            await execute("INSERT INTO public.orders VALUES (1)")
            await app.enqueue(work.new(n=1), connection)
            await end()
            assert len(await app.jobs.list()) == count
            assert len(await orders(app)) == count


async def orders(app):
    connection = await asyncpg.connect(app.dsn)
    try:
        return await connection.fetch("SELECT FROM public.orders")
    finally:
        await connection.close()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize("kind", ["Session", "Connection"])
async def test_a_synchronous_one_inside_run_sync_is_joined(app, work, kind, driver):
    """Synchronous code over an asynchronous driver, which is the only way to have a Session or a Connection over asyncpg."""
    engine = create_async_engine(url(app.dsn, driver))
    async with AsyncSession(engine) if kind == "Session" else engine.connect() as outer:

        def enqueue(inner, *numbers):
            assert type(inner).__name__ == kind
            first, *others = numbers
            return app.sync.enqueue(work.new(n=first), inner), app.sync.enqueue_many([work.new(n=n) for n in others], inner)

        await outer.run_sync(enqueue, 1, 2)
        await outer.rollback()
        first, others = await outer.run_sync(enqueue, 3, 4, 5)
        assert await app.jobs.list() == []
        await outer.commit()
    await engine.dispose()
    jobs = {job.id: job.args["n"] for job in await app.jobs.list()}
    assert [jobs[row.id] for row in (first, *others)] == [3, 4, 5]
    assert len(jobs) == 3


@pytest.mark.parametrize("kind", KINDS)
async def test_a_duplicate_leaves_the_transaction_as_it_was(app, work, unique, kind):
    first = await unique.enqueue(n=1)
    async with KINDS[kind](app.dsn) as (connection, _, commit, _):
        await app.enqueue(work.new(n=1), connection)
        with pytest.raises(rj.DuplicateJob, match=f"job {first.id}"):
            await app.enqueue(unique.new(n=1), connection)
        with pytest.raises(rj.DuplicateJob):
            await app.enqueue_many([unique.new(n=2), unique.new(n=1)], connection)
        await app.enqueue(unique.new(n=3), connection)
        await commit()
    assert sorted((job.type, job.args["n"]) for job in await app.jobs.list()) == [("unique", 1), ("unique", 3), ("work", 1)]


@pytest.mark.parametrize("connect", [psycopg.connect, psycopg.AsyncConnection.connect])
async def test_without_a_transaction_it_is_committed_at_once(app, work, unique, connect):
    connection = connect(app.dsn, autocommit=True)
    connection = await connection if connect is not psycopg.connect else connection
    await app.enqueue(work.new(n=1), connection)
    await app.enqueue(unique.new(n=1), connection)
    assert len(await app.jobs.list()) == 2
    closing = connection.close()
    if closing is not None:
        await closing


async def test_whoever_waits_for_jobs_is_woken_by_the_commit(app, work):
    listening = await asyncpg.connect(app.dsn)
    heard = []
    await listening.add_listener("rxjobs", lambda *args: heard.append(args[-1]))
    async with of_psycopg(app.dsn) as (connection, _, commit, _):
        await app.enqueue(work.new(n=1), connection)
        await listening.fetch("SELECT")
        assert heard == []
        await commit()
        await listening.fetch("SELECT")
    assert heard == ["default"]
    await listening.close()


async def test_what_is_no_connection_is_named_with_what_is_one(app, work):
    for wrong in (object(), app.dsn, create_engine("sqlite://")):
        with pytest.raises(rj.InvalidOption, match=r"connection= takes a connection of asyncpg or psycopg 3, .* not "):
            await app.enqueue(work.new(n=1), wrong)
    sqlite = create_engine("sqlite://", poolclass=NullPool)  # from Python 3.13 on a connection that a pool forgets is a warning
    with sqlite.connect() as connection, pytest.raises(rj.InvalidOption, match=r"over sqlite3\.Connection"):
        await app.enqueue(work.new(n=1), connection)


DJANGO = """
import sys
import django
from django.conf import settings
from django.db import connection, transaction
from psycopg.conninfo import conninfo_to_dict

import rxjobs as rj

dsn = conninfo_to_dict(sys.argv[1])  # of an embedded server the host is a folder
settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": dsn["dbname"], "USER": dsn["user"], "PASSWORD": dsn.get("password", ""),
    "HOST": dsn["host"], "PORT": dsn.get("port", ""),
}})
django.setup()
app = rj.App(sys.argv[1])


@app.job(name="work")
def work(n: int) -> None: ...


class Undo(Exception): ...


try:
    with transaction.atomic():
        app.sync.enqueue(work.new(n=1), connection)
        raise Undo
except Undo:
    pass
with transaction.atomic():
    app.sync.enqueue(work.new(n=2), connection)
    try:
        with transaction.atomic():
            app.sync.enqueue(work.new(n=3), connection)
            raise Undo
    except Undo:
        pass
print(sorted(job.args["n"] for job in app.sync.jobs.list()))
"""


async def test_djangos_transactions_are_joined(app, tmp_path):
    """In a process of its own, since Django is set up once in a process."""
    program = tmp_path / "program.py"
    program.write_text(DJANGO)
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-W", "error", program, app.dsn], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (0, "[2]\n"), ran.stderr
