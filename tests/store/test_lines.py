"""A few connections that statements follow each other on."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from rxjobs.store.lines import Lines
from rxjobs.store.patience import PASSING
from tests.store.ground import emptied


@pytest.fixture
async def dsn(ground):
    return await emptied(ground)


@pytest.fixture
async def lines(dsn):
    lines = Lines(lambda: asyncpg.connect(dsn), 2, 0.5)
    yield lines
    await lines.close()


async def ask(lines, sql, *args):
    ((answer,),) = await lines.fetch(sql, *args, timeout=5)
    return answer


async def test_no_more_connections_are_made_than_asked_for_and_each_is_used_again(lines):
    pids = await asyncio.gather(*(ask(lines, "SELECT pg_backend_pid()") for _ in range(50)))
    assert len(set(pids)) <= 2
    assert await ask(lines, "SELECT pg_backend_pid()") in pids


async def test_while_the_first_is_idle_the_others_rest(lines):
    """Whoever came back last: so the second of an idle node is not woken again."""
    first = await ask(lines, "SELECT pg_backend_pid()")
    for is_slow in (0.0, 0.05), (0.05, 0.0):
        pids = await asyncio.gather(*(ask(lines, "SELECT pg_backend_pid() FROM pg_sleep($1)", seconds) for seconds in is_slow))
        assert len(set(pids)) == 2
        assert {await ask(lines, "SELECT pg_backend_pid()") for _ in range(3)} == {first}


async def test_who_is_cancelled_leaves_no_answer_behind_for_the_next(lines):
    for number in range(50):
        asking = asyncio.ensure_future(ask(lines, "SELECT 'mine' FROM pg_sleep(0.01)"))
        await asyncio.sleep(number / 5_000)
        asking.cancel()
        assert await ask(lines, "SELECT $1::int", number) == number
    assert await asyncio.gather(*(ask(lines, "SELECT $1::int", number) for number in range(10))) == list(range(10))


async def test_a_statement_that_fails_costs_no_connection(lines):
    pid = await ask(lines, "SELECT pg_backend_pid()")
    for _ in range(5):
        with pytest.raises(asyncpg.DivisionByZeroError):
            await ask(lines, "SELECT 1 / 0")
    assert await ask(lines, "SELECT pg_backend_pid()") == pid


async def test_what_the_server_ends_is_replaced(lines, dsn):
    await asyncio.gather(*(ask(lines, "SELECT pg_sleep(0.01)") for _ in range(4)))
    other = await asyncpg.connect(dsn)
    for _ in range(3):
        await other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = "
                            "current_database() AND backend_type = 'client backend'")  # fmt: skip
        while True:  # a connection that does not know yet fails once
            try:
                assert await ask(lines, "SELECT 1") == 1
                break
            except PASSING:
                pass
    await other.close()


async def test_who_waits_in_vain_is_told_why(lines):
    taking = [asyncio.ensure_future(ask(lines, "SELECT pg_sleep(1.5)")) for _ in range(2)]
    await asyncio.sleep(0.1)
    with pytest.raises(TimeoutError, match=r"^all 2 connections were in use for 0.5 s"):
        await ask(lines, "SELECT 1")
    await asyncio.gather(*taking)
    assert await ask(lines, "SELECT 1") == 1


async def test_a_connection_that_cannot_be_made_takes_nobodys_place(dsn):
    refuse = True

    async def connect():
        if refuse:
            raise OSError("not now")
        return await asyncpg.connect(dsn)

    lines = Lines(connect, 1, 0.5)
    for _ in range(3):
        with pytest.raises(OSError, match="not now"):
            await ask(lines, "SELECT 1")
    refuse = False
    assert await asyncio.gather(*(ask(lines, "SELECT $1::int", number) for number in range(5))) == list(range(5))
    await lines.close()


async def test_a_statement_that_takes_too_long_ends_its_connection(lines):
    with pytest.raises(TimeoutError):
        await lines.fetch("SELECT pg_sleep(5)", timeout=0.2)
    assert await ask(lines, "SELECT 42") == 42
