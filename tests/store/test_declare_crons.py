from __future__ import annotations

import asyncpg
import pytest

from tests.store.ground import a_node
from tests.waiting import until

ONE, OTHER = ("one", "@daily", "UTC", "once", "{}"), ("other", "@daily", "UTC", "once", "{}")


@pytest.fixture
async def heard(ground, connection):
    """What notifications say."""
    heard, listening = list[str](), await asyncpg.connect(ground)
    await listening.add_listener("rxjobs", lambda *of: heard.append(of[-1]))
    yield heard
    await listening.close()


def columns(*entries):
    return [list(column) for column in zip(*entries, strict=True)]


async def test_whoever_leads_is_told_of_what_begins_or_is_on_again_and_of_nothing_else(store, connection, node, heard):
    async def told(node, *entries) -> int:
        before = len(heard)
        await store.declare_crons(node, columns(*entries))
        await connection.execute("NOTIFY rxjobs, 'end'")
        await until(lambda: heard[before:][-1:] == ["end"])
        return len(heard) - before - 1

    assert await told(node, ONE) == 1
    assert await told(node, ONE) == 0
    assert await told(node, ONE, OTHER) == 1
    assert await told(node, ONE, (*OTHER[:4], '{"another": 1}')) == 0
    assert await told(node, ONE, ("other", "@hourly", *OTHER[2:])) == 1
    assert await told(await a_node(connection), ONE) == 1  # it may be the only one that does
    assert set(heard) == {"!", "end"}
