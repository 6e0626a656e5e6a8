import asyncio
from contextlib import ExitStack

import pytest

from rxjobs.awaiting import LoopScheduler
from rxjobs.services.claims import lost_claims
from rxjobs.store.database import Database
from rxjobs.store.store import Store
from tests.store.ground import SCHEMA, a_node, a_row, migrated, states


@pytest.fixture
async def connection(dsn):
    connection = await migrated(dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def store(connection, dsn):
    database = Database(dsn)
    await database.open()
    yield Store(database, SCHEMA)
    await database.close()


async def test_a_claim_is_lost_only_when_its_answer_can_not_come_any_more(connection, store):
    """However late the answer comes: the loop may be blocked, or the network slow, for longer than any interval."""
    node, held = await a_node(connection), set()
    lost, late = await a_row(connection), await a_row(connection)
    looks = asyncio.Queue()
    watching = lost_claims(store, node, lambda: held, every_seconds=0.02).subscribe(
        looks.put_nowait, scheduler=LoopScheduler(asyncio.get_running_loop())
    )
    await store.fetch_jobs("default", 1, ["work"], node)  # its answer is thrown away
    with ExitStack() as answered:
        answered.enter_context(store.claiming())
        await store.fetch_jobs("default", 1, ["work"], node)
        for _ in range(10):
            await looks.get()
        assert (await states(connection, [late])) == ["executing"]
        held.add(late)
    while await states(connection, [lost]) != ["available"]:
        await looks.get()
    for _ in range(5):
        await looks.get()
    assert await states(connection, [lost, late]) == ["available", "executing"]
    watching.dispose()
