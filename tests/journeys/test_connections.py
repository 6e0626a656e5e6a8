"""Whoever takes connections, ends them, or makes statements fail costs a node neither its lease nor an outcome."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import defaultdict
from contextlib import suppress
from datetime import datetime, timedelta

import asyncpg
import pytest

import rxjobs as rj
from rxjobs import events, node
from rxjobs.store.database import STATEMENT_TIMEOUT
from rxjobs.store.statements import statement
from rxjobs.testing import fill
from tests.numbers import at_most
from tests.proxy import Proxy
from tests.servers import PrivatePostgres
from tests.store.ground import a_claimed_row, a_node, migrated
from tests.waiting import until

LEASE = 3.0
FAST = {"lease_seconds": LEASE, "heartbeat_seconds": 0.3, "leader_seconds": 0.9, "rescue_seconds": 0.3, "poll_seconds": 0.3}
HARM = events.NodeLost, events.NodeCutOff, events.JobsRescued, events.JobStale, events.PipelineRestarted


@pytest.fixture
async def connection(dsn):
    connection = await migrated(dsn)
    await until(lambda: connection.fetchval(f"SELECT now() - pg_postmaster_start_time() > interval '{LEASE} seconds'"))
    yield connection
    await connection.close()


@pytest.fixture
async def unhandled():
    """What nobody has handled in this loop; there is to be nothing."""
    found: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: found.append(context))
    yield found
    assert found == []


def an_app(dsn, **settings):
    """One job type that works, and one that fails once; what it tells that it should not."""
    app = rj.App(dsn, **{**FAST, **settings})
    harm: list[events.Event] = []
    app.events.subscribe(lambda event: harm.append(event) if isinstance(event, HARM) else None)

    @app.job(name="work")
    async def work(seconds: float = 0.0) -> None:
        await asyncio.sleep(seconds)

    @app.job(name="flaky", backoff=lambda attempt, error: 0.2, breaker=None)
    async def flaky() -> None:
        if rj.current_job().attempt == 1:
            raise ValueError("not yet")

    @app.job(name="late")
    async def late() -> None: ...

    return app, harm


async def completed(connection, type_="work"):
    return await connection.fetchval(
        "SELECT count(*) FROM rxjobs.finished_jobs WHERE state = 'completed' AND type = $1 AND attempt = 1", type_
    )


SLOW = """
CREATE FUNCTION rxjobs.take_time() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(20); RETURN NEW; END $$;
CREATE TRIGGER take_time BEFORE INSERT ON rxjobs.live_jobs FOR EACH ROW
WHEN (NEW.type = 'late') EXECUTE FUNCTION rxjobs.take_time();
"""


async def test_code_that_takes_every_connection_costs_no_lease_and_no_outcome(dsn, connection, unhandled):
    """F12, and as asyncpg#1247 (row 71): ten times as many as there are connections ask for one, for almost two leases."""
    app, harm = an_app(dsn)
    await connection.execute(SLOW)
    late = app.definition("late")
    await fill(connection, "work", 20, args={"seconds": 1.0})
    await fill(connection, "work", 20, args={"seconds": 3.0})
    left = []
    async with app.running():
        await until(lambda: connection.fetchval("SELECT count(*) = 40 FROM rxjobs.live_jobs WHERE state = 'executing'"))
        hungry = [asyncio.ensure_future(app.enqueue_many([late.new()])) for _ in range(100)]
        asleep = "SELECT count(*) = 10 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        await until(lambda: connection.fetchval(asleep))
        end = time.monotonic() + 1.8 * LEASE
        while time.monotonic() < end:
            left.append(await connection.fetchval("SELECT extract(epoch FROM min(expires_at) - now())::float8 FROM rxjobs.nodes"))
            await asyncio.sleep(0.05)
        assert await completed(connection) == 40  # written down while all were taken
        assert await connection.fetchval(asleep)
        for one in hungry:
            one.cancel()
        outcomes = await asyncio.gather(*hungry, return_exceptions=True)
        await app.definition("work").enqueue()
        await until(lambda: connection.fetchval("SELECT count(*) >= 41 FROM rxjobs.finished_jobs WHERE type = 'work'"))
    print(f"of a lease of {LEASE} s at least {min(left):.2f} s were left")
    assert min(left) > 0
    assert harm == []
    told = {str(one) for one in outcomes if isinstance(one, TimeoutError)}
    assert told == {
        "all 8 connections were in use for 5 s: statements take long, or more is asked for at once than the server can answer"
    }


async def test_a_server_that_has_no_connections_left_is_waited_for(start):
    """F13: those of the worker are ended, and others take their places before it can have them back."""
    async with PrivatePostgres(shared_buffers="16MB", max_connections="20") as postgres:
        await rj.App(postgres.dsn).migrate()
        watching = await asyncpg.connect(postgres.dsn)
        worker = start(postgres.dsn, rxjobs_lease_seconds=LEASE, rxjobs_heartbeat_seconds=0.3, rxjobs_poll_seconds=0.3)
        await fill(watching, "work", 100, args={"seconds": 0.05})
        await until(lambda: watching.fetchval("SELECT count(*) = 100 FROM rxjobs.finished_jobs"))
        others: list[asyncpg.Connection] = []
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            await watching.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rxjobs'")
            with suppress(asyncpg.TooManyConnectionsError):
                while True:
                    others.append(await asyncpg.connect(postgres.dsn))
            await asyncio.sleep(0.05)
        assert worker.process.poll() is None
        assert "too many clients already" in worker.log
        await fill(watching, "work", 20)
        started = len(worker.lines("start"))
        for other in others:
            other.terminate()
        freed = time.monotonic()
        await until(lambda: len(worker.lines("start")) > started)
        took = time.monotonic() - freed
        print(f"the first job began {took:.2f} s after connections were to be had again")
        at_most("first job after connections were to be had again", took, 3)
        await until(lambda: watching.fetchval("SELECT count(*) = 120 FROM rxjobs.finished_jobs WHERE attempt = 1"))
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.ended() == 0
        assert "Traceback" not in worker.log
        await watching.close()


async def test_a_table_that_somebody_keeps_for_himself_is_waited_for_in_short_tries(dsn, connection, unhandled):
    """F15: no statement waits for longer than five seconds, so that no connection is lost to it, and work goes on at once."""
    assert STATEMENT_TIMEOUT <= 5.0
    app, harm = an_app(dsn)
    async with app.running():
        await fill(connection, "work", 40, args={"seconds": 0.5})
        await connection.execute("SELECT pg_notify('rxjobs', 'default')")
        await until(lambda: connection.fetchval("SELECT count(*) > 0 FROM rxjobs.live_jobs WHERE state = 'executing'"))
        waiting = (
            "SELECT query, query_start, clock_timestamp() - query_start AS waited FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '-- Write down%'"
        )
        tries: dict[str, set[datetime]] = defaultdict(set)
        longest = timedelta()
        async with connection.transaction():
            await connection.execute("LOCK TABLE rxjobs.live_jobs IN ACCESS EXCLUSIVE MODE")
            other = await asyncpg.connect(dsn)

            async def is_tried_again() -> bool:
                nonlocal longest
                for query, begun, waited in await other.fetch(waiting):
                    tries[query].add(begun)
                    longest = max(longest, waited)
                return any(len(begun) > 1 for begun in tries.values())

            await until(is_tried_again, every=0.1)
            await other.close()
        freed = time.monotonic()
        await until(lambda: completed(connection))
        print(f"the first outcome was written {time.monotonic() - freed:.2f} s after the table was free")
        await until(lambda: connection.fetchval("SELECT count(*) = 40 FROM rxjobs.finished_jobs"))
    assert longest > timedelta(seconds=3)
    assert harm == []
    assert await completed(connection) == 40


INTERNAL = (
    "fetch_jobs", "ack_completed", "ack_jobs", "find_acked", "renew_lease", "lead", "stage_jobs", "expired_nodes", "rescue_jobs",
    "bury", "lost_claims", "serve", "unserved", "leave", "resign", "look", "take_lease", "declare_types", "describe_server",
    "oldest_transactions",
)  # fmt: skip
"""What a node asks by itself and is to be seen within seconds."""


async def test_each_question_of_a_node_may_stay_without_an_answer(dsn, connection, unhandled, monkeypatch, caplog):
    """As pg-boss#365 (row 39): of each kind one is done and its link is cut; nothing but a line in the log comes of it."""
    for interval in ("UNSERVED_SECONDS", "HORIZON_SECONDS", "ROOM_SECONDS"):
        monkeypatch.setattr(node, interval, 0.3)
    dead = await a_node(connection, seconds=-1)
    lost = await a_claimed_row(connection, dead)
    async with Proxy(dsn) as proxy:
        traps = {name: proxy.cut_after(statement(name, "rxjobs").partition("\n")[0]) for name in INTERNAL}
        at_the_end = {traps.pop(name) for name in ("leave", "resign")}
        app, _ = an_app(proxy.dsn)
        async with app.running():
            for type_ in ("work", "flaky"):
                await fill(connection, type_, 50)
            await connection.execute("SELECT pg_notify('rxjobs', 'default')")
            await until(lambda: not unsprung(traps))
            await fill(connection, "work", 100)
            await until(lambda: connection.fetchval("SELECT count(*) = 0 FROM rxjobs.live_jobs"))
        assert any(trap.sprung.is_set() for trap in at_the_end)
    assert await connection.fetchval("SELECT count(*) = 201 FROM rxjobs.finished_jobs WHERE state = 'completed'")
    assert await connection.fetchval("SELECT attempt FROM rxjobs.finished_jobs WHERE id = $1", lost) == 2
    assert await connection.fetchval("SELECT max(attempt) FROM rxjobs.finished_jobs WHERE type = 'work' AND id <> $1", lost) == 1
    assert [record.message for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


async def test_a_database_that_goes_away_while_a_node_begins_is_waited_for(dsn, connection, caplog):
    async with Proxy(dsn) as proxy:
        proxy.watch_for(statement("take_lease", "rxjobs").partition("\n")[0], "Z", lambda link: proxy.refuse())
        app, harm = an_app(proxy.dsn)
        await fill(connection, "work", 1)

        async def back_later():
            # the answer itself may get lost, too
            await until(lambda: "a lease failed" in caplog.text or "telling what job types there are failed" in caplog.text)
            proxy.heal()

        back = asyncio.ensure_future(back_later())
        async with app.running():
            await until(lambda: completed(connection))
        await back
    assert harm == []


def unsprung(traps):
    return [name for name, trap in traps.items() if not trap.sprung.is_set()]


async def test_each_question_of_a_node_may_be_refused(dsn, connection, unhandled, caplog):
    """As pg-boss#365 (row 39): by an error that does not look as if it passed, since somebody renames a table for a second."""
    app, _ = an_app(dsn)
    async with app.running():
        for table in ("leaders", "nodes", "live_jobs", "finished_jobs"):
            await connection.execute(f"ALTER TABLE rxjobs.{table} RENAME TO away")
            await asyncio.sleep(1.0)  # for so long it is away: whatever a node asks each second is refused
            await connection.execute(f"ALTER TABLE rxjobs.away RENAME TO {table}")
            await fill(connection, "work", 50)
            await fill(connection, "flaky", 5)
            await until(lambda: connection.fetchval("SELECT count(*) = 0 FROM rxjobs.live_jobs"))
    assert await completed(connection) == 200
    assert "does not exist" in caplog.text


async def test_a_flood_of_notifications_while_it_stops_does_no_harm(dsn, connection, unhandled, caplog):
    """As graphile#381 (row 38)."""
    flooding = True

    async def flood():
        while flooding:
            await connection.execute("SELECT pg_notify('rxjobs', 'default' || n) FROM generate_series(1, 50) AS n")
            await connection.execute("NOTIFY rxjobs, 'default'")

    flood_ = asyncio.ensure_future(flood())
    for n in range(10):
        app, harm = an_app(dsn)
        async with app.running():
            if n % 2:
                await asyncio.sleep(0.02)
        assert harm == []
    flooding = False
    await flood_
    assert [record.message for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []
