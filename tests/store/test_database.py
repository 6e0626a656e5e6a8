import asyncio
import traceback

import asyncpg
import pytest

from rxjobs.errors import NoDatabase
from rxjobs.store.database import Database, masked
from rxjobs.store.patience import PASSING
from tests.servers import find_free_port
from tests.waiting import until

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://ann:{SECRET}@db.example/jobs",
        f"postgresql://ann:{SECRET}@db.example:5432,other:5433/jobs?sslmode=require",
        f"postgresql://ann:{SECRET}%40@db.example/jobs",
        f"postgresql://ann:{SECRET}/@db.example/jobs",
        f"postgresql://ann:a@{SECRET}@db.example/jobs",
        f"postgresql://ann:{SECRET}#@db.example/jobs",
        f"postgresql://ann:{SECRET}?@db.example/jobs",
        f"postgresql://:{SECRET}@db.example/jobs",
        f"postgresql://ann@db.example/jobs?password={SECRET}",
        f"postgresql://ann@db.example/jobs?sslmode=require&password={SECRET}&port=1",
        f"postgresql://ann@db.example/jobs?sslpassword={SECRET}",
        f"host=db.example user=ann password={SECRET} dbname=jobs",
        f"host=db.example user=ann password = '{SECRET} x' dbname=jobs",
        f"postgresql://ann:{SECRET}@[::1:5432/jobs",
    ],
)
def test_no_password_is_ever_shown(dsn):
    assert SECRET not in masked(dsn)
    assert "***" in masked(dsn)


@pytest.mark.parametrize(
    "dsn",
    ["postgresql://ann@db.example:5432/jobs?sslmode=require", "postgresql:///jobs?host=/tmp", "postgres://db/jobs", "nonsense"],
)
def test_a_dsn_without_a_password_is_shown_as_it_is(dsn):
    assert masked(dsn) == dsn


def test_where_a_masked_dsn_leads_is_still_to_be_seen():
    assert masked(f"postgresql://ann:{SECRET}@db.example:5432/jobs?sslmode=require") == (
        "postgresql://ann:***@db.example:5432/jobs?sslmode=require"
    )


async def refusal(dsn):
    with pytest.raises(NoDatabase) as raised:
        await Database(dsn).open()
    return str(raised.value)


async def test_a_server_that_is_not_there_is_one_clear_message():
    message = await refusal(f"postgresql://ann:{SECRET}@127.0.0.1:{find_free_port()}/jobs")
    assert message.startswith("no connection to postgresql://ann:***@127.0.0.1")
    assert "RXJOBS_DSN, --dsn or App(dsn)" in message
    assert SECRET not in message


async def test_a_database_that_is_not_there_is_named(dsn):
    message = await refusal(dsn.replace("/rxjobs_test_", "/no_such_"))
    assert "does not exist" in message


@pytest.mark.parametrize(
    "dsn",
    [
        "mysql://localhost/jobs",
        "nonsense",
        f"host=x password={SECRET}",
        "postgresql://localhost:port/x",
        f"postgresql://ann:{SECRET}/more@127.0.0.1/jobs",
        f"postgresql://ann:{SECRET}@[::1/jobs",
    ],
)
async def test_what_is_no_dsn_of_postgresql_is_refused_in_words_that_do_not_quote_it(dsn):
    for attempt in (Database(dsn).open, Database(dsn).connect):
        with pytest.raises(NoDatabase, match="RXJOBS_DSN") as raised:
            await attempt()
        assert SECRET not in "".join(traceback.format_exception(raised.value))


async def test_a_connection_that_the_server_ended_is_replaced(database):
    async def pids():
        return {(await database.fetch("SELECT pg_backend_pid() AS pid"))[0]["pid"] for _ in range(3)}

    (before,) = await pids()
    other = await asyncpg.connect(database.dsn)
    await other.execute("SELECT pg_terminate_backend($1)", before)
    await other.close()
    while True:
        try:
            after = await pids()
            break
        except PASSING:  # one statement may meet the end of the old one
            await asyncio.sleep(0.01)
    assert before not in after


async def test_a_statement_that_is_cancelled_leaves_its_connection_usable(database):
    for _ in range(30):
        slow = asyncio.ensure_future(database.fetch("SELECT pg_sleep(60)"))
        await asyncio.sleep(0.005)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
    assert (await asyncio.gather(*(database.fetch("SELECT 1 AS one") for _ in range(50))))[-1][0]["one"] == 1
    await until(lambda: nobody_sleeps(database))


async def nobody_sleeps(database):
    here = "datname = current_database() AND pid <> pg_backend_pid()"
    return not await database.fetch(f"SELECT FROM pg_stat_activity WHERE {here} AND query LIKE '%pg_sleep%' AND state = 'active'")
