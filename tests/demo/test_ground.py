"""The schema of the demo: made anew, and nobody else's."""

from __future__ import annotations

import asyncpg
import pytest

from rxjobs.demo.ground import prepared
from rxjobs.errors import InvalidOption, NoDatabase


async def test_what_an_earlier_demo_left_behind_is_dropped(dsn: str):
    async with prepared(dsn, "rxjobs_demo") as database:
        await database.fetch("CREATE TABLE rxjobs_demo.left_behind ()")
    async with prepared(dsn, "rxjobs_demo") as database:
        (row,) = await database.fetch("SELECT to_regclass('rxjobs_demo.left_behind') AS left_behind")
        assert row["left_behind"] is None


async def test_a_schema_that_the_demo_did_not_make_is_left_alone(dsn: str):
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("CREATE SCHEMA theirs; CREATE TABLE theirs.precious ()")
        with pytest.raises(InvalidOption, match="theirs was not made by the demo"):
            async with prepared(dsn, "theirs"):
                pass
        assert await connection.fetchval("SELECT to_regclass('theirs.precious')") is not None
    finally:
        await connection.close()


async def test_two_demos_do_not_share_a_schema(dsn: str):
    async with prepared(dsn, "rxjobs_demo"):
        with pytest.raises(InvalidOption, match="another demo"):
            async with prepared(dsn, "rxjobs_demo"):
                pass
        async with prepared(dsn, "rxjobs_demo_too"):
            pass


async def test_a_name_that_is_no_schema_is_refused(dsn: str):
    with pytest.raises(InvalidOption, match="lower-case"):
        async with prepared(dsn, "demo; DROP TABLE x"):
            pass


async def test_a_database_that_does_not_answer_is_told_without_its_password():
    with pytest.raises(NoDatabase, match=r"no connection") as raised:
        async with prepared("postgresql://me:secret@127.0.0.1:1/x", "rxjobs_demo"):
            pass
    assert "secret" not in str(raised.value)
