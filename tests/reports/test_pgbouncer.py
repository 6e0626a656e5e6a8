"""What befell others behind PgBouncer in transaction mode. See docs/faults.md.

Each is tried on a pooler of our own, which is there on every machine, and on PgBouncer where that is installed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.doctor.examine import examine
from rxjobs.doctor.finding import Health
from rxjobs.settings import Settings
from rxjobs.store.database import Database
from rxjobs.store.hearing import can_listen
from tests.reports.pooler import TransactionPooler
from tests.servers import find_free_port
from tests.waiting import until

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
SESSIONS = 3
JOBS = int(os.environ.get("RXJOBS_TEST_POOLED_JOBS", "2000"))
"""10,000 of them are for a longer look than the suite's."""


@asynccontextmanager
async def pgbouncer(dsn: str, folder: Path, mode: str = "transaction", sessions: int = SESSIONS) -> AsyncIterator[str]:
    """PgBouncer before a database; gives the DSN of both."""
    assert PGBOUNCER is not None
    to, port = urlsplit(dsn), find_free_port()
    options = dict(parse_qsl(to.query))
    host, server_port = options.get("host", to.hostname), options.get("port", to.port)
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n* = host={host} port={server_port} user={to.username}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"pool_mode = {mode}\ndefault_pool_size = {sessions}\nmax_client_conn = 200\n"
    )
    account = ["-u", "postgres"] if os.geteuid() == 0 else []  # as root it does not run
    with (folder / "pgbouncer.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(PGBOUNCER, *account, settings, stdout=log, stderr=log)
    here = to._replace(netloc=f"{to.username}@127.0.0.1:{port}", query="").geturl()
    try:
        await until(lambda: answers(here))
        yield here
    finally:
        process.terminate()
        await process.wait()


async def answers(dsn: str) -> bool:
    with suppress(OSError, asyncpg.PostgresError):
        await (await asyncpg.connect(dsn, statement_cache_size=0)).close()
        return True
    return False


needs_pgbouncer = pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed here (Debian's package pgbouncer)")


@pytest.fixture(params=["ours", pytest.param("pgbouncer", marks=needs_pgbouncer)])
async def pooled(request, dsn, tmp_path):
    """The DSN of the test's database through a pooler in transaction mode."""
    if request.param == "ours":
        async with TransactionPooler(dsn, SESSIONS) as pooler:
            yield pooler.dsn
    else:
        async with pgbouncer(dsn, tmp_path) as here:
            yield here


async def asked(dsn: str, statement_cache_size: int = 100) -> Counter[str]:
    """What 24 clients meet that ask something ten times each."""
    met = Counter[str]()

    async def ask(number: int) -> None:
        connection = await asyncpg.connect(dsn, statement_cache_size=statement_cache_size)
        try:
            for _ in range(10):
                assert await connection.fetchval("SELECT $1::int + 1", number) == number + 1
                met["answer"] += 1
        except asyncpg.PostgresError as error:
            met[type(error).__name__] += 1
        finally:
            await connection.close()

    await asyncio.gather(*(ask(number) for number in range(24)))
    return met


async def test_what_is_prepared_or_listened_for_is_gone_in_the_next_transaction(pooled, dsn):
    """As asyncpg#198, #339, #1058, que#110: what the other tests here rest on, and how a pooler is known."""

    async def misses_its_statement() -> bool:
        return (await asked(pooled))["InvalidSQLStatementNameError"] > 0

    await until(misses_its_statement)  # who is given whose session is the pooler's choice
    assert await asked(pooled, statement_cache_size=0) == {"answer": 240}
    heard = list[str]()
    listening = await asyncpg.connect(pooled, statement_cache_size=0)
    await listening.add_listener("anything", lambda *notification: heard.append(notification[-1]))
    notifying = await asyncpg.connect(dsn)
    for _ in range(5):  # none of the sessions is in a transaction of who listens
        await notifying.execute("SELECT pg_notify('anything', 'heard')")
    await notifying.close()
    assert await asked(pooled, statement_cache_size=0) == {"answer": 240}
    assert heard == []
    assert listening.get_server_pid() != await listening.fetchval("SELECT pg_backend_pid()")
    await listening.close()


async def test_a_schema_is_migrated_through_a_pooler_and_no_lock_stays_behind(pooled, dsn):
    """As river#205: no connection was to be had, for what was asked for when it was made. And as AIOStreams#975: a lock stayed."""
    for applied in (True, False):
        assert bool(await rj.App(pooled).migrate()) is applied
    assert await advisory_locks(dsn) == 0


THIS = "(SELECT oid FROM pg_database WHERE datname = current_database())"


@pytest.mark.timeout(600)
async def test_jobs_run_once_each_through_a_pooler_by_the_poll_alone(pooled, dsn, caplog):
    """As asyncpg#198, #339, #1058, que#110, river#205: nothing ran behind PgBouncer, or now and then it did not."""
    await rj.App(dsn).migrate()
    app = rj.App(pooled, poll_seconds=0.2)
    runs = Counter[int]()

    @app.job
    async def work(n: int) -> None:
        runs[n] += 1

    async with app.running():
        for first in range(0, JOBS, 100):
            await app.enqueue_many(work.new(n) for n in range(first, first + 100))
        for n in range(JOBS, JOBS + 20):
            await work.options(delay=0.1).enqueue(n)
        await until(lambda: len(runs) == JOBS + 20, seconds=500)
        await until(lambda: is_completed(dsn, JOBS + 20))
    assert set(runs.values()) == {1}
    assert "through a pooler" in caplog.messages[0]  # whoever starts it is told that jobs wait for the poll
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
    assert await advisory_locks(dsn) == 0


async def test_a_doctor_says_that_jobs_are_found_by_the_poll_and_what_to_do(pooled):
    await rj.App(pooled).migrate()
    found = {finding.check: finding for finding in await examine(Settings(dsn=pooled))}
    assert found["pooler"].state is Health.WARNING
    assert "listen_dsn" in found["pooler"].advice
    assert "found by the poll" in found["notifications"].found


async def test_jobs_start_at_once_where_the_server_itself_is_listened_to(pooled, dsn):
    await rj.App(pooled).migrate()
    app, ran = rj.App(pooled, listen_dsn=dsn, poll_seconds=60), asyncio.Event()
    app.job(name="work")(jobs_that_set(ran))
    async with app.running():
        await until(lambda: app.store.database.listener is not None and app.store.database.listener.is_free)
        await app.enqueue(app.definition("work").new())
        await asyncio.wait_for(ran.wait(), 30)  # by the poll it would be a minute
    found = {finding.check: finding for finding in await examine(Settings(dsn=pooled, listen_dsn=dsn))}
    assert found["pooler"].state is found["notifications"].state is Health.OK
    assert "listen_dsn" in found["notifications"].found


@needs_pgbouncer
async def test_jobs_start_at_once_behind_a_pooler_in_session_mode_which_is_known_by_what_is_heard(dsn, tmp_path, caplog):
    async with pgbouncer(dsn, tmp_path, "session", sessions=40) as here:
        await rj.App(here).migrate()
        app, ran = rj.App(here, poll_seconds=60), asyncio.Event()
        app.job(name="work")(jobs_that_set(ran))
        async with app.running():
            assert app.store.database.is_behind_pooler
            await until(lambda: app.store.database.listener is not None and app.store.database.listener.is_free)
            await app.enqueue(app.definition("work").new())
            await asyncio.wait_for(ran.wait(), 30)  # by the poll it would be a minute
        found = {finding.check: finding for finding in await examine(Settings(dsn=here))}
    assert found["pooler"].state is found["notifications"].state is Health.OK
    assert "session mode" in found["pooler"].found
    assert "through a pooler" not in caplog.text


@needs_pgbouncer
async def test_a_pooler_whose_sessions_are_all_taken_is_no_one_to_listen_to(dsn, tmp_path):
    """Who waits for a session of it cannot know how it shares them: the poll does."""
    async with pgbouncer(dsn, tmp_path, "session", sessions=1) as here:
        database = Database(here)
        assert database.is_behind_pooler
        assert not await can_listen(database)


async def test_a_listen_dsn_on_which_nothing_is_heard_is_told_at_the_start_and_by_the_doctor(pooled, dsn, caplog, monkeypatch):
    """As where that leads through the pooler, too."""
    monkeypatch.setattr("rxjobs.store.hearing.HEARD_SECONDS", 1.0)
    await rj.App(pooled).migrate()
    app, ran = rj.App(pooled, listen_dsn=pooled, poll_seconds=0.2), asyncio.Event()
    app.job(name="work")(jobs_that_set(ran))
    async with app.running():
        await until(lambda: "no notification is heard on listen_dsn" in caplog.text)
        await app.enqueue(app.definition("work").new())
        await until(lambda: is_completed(dsn, 1))
    found = {finding.check: finding for finding in await examine(Settings(dsn=pooled, listen_dsn=pooled))}
    assert found["notifications"].state is Health.PROBLEM


def jobs_that_set(event: asyncio.Event):
    async def work() -> None:
        event.set()

    return work


async def advisory_locks(dsn: str) -> int:
    """How many were left behind in the database."""
    connection = await asyncpg.connect(dsn)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = " + THIS))
    finally:
        await connection.close()


async def is_completed(dsn: str, count: int) -> bool:
    connection = await asyncpg.connect(dsn)
    try:
        found = await connection.fetchval("SELECT count(*) FROM rxjobs.finished_jobs WHERE state = 'completed' AND attempt = 1")
        return bool(found == count)
    finally:
        await connection.close()
