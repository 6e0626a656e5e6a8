import asyncio
from contextlib import suppress

from rxjobs.services.claims import lost_claims
from tests.store.ground import a_node, a_row, states


async def test_a_claim_is_lost_only_when_its_answer_can_not_come_any_more(connection, store, scheduler):
    """However late the answer comes: the loop may be blocked, or the network slow, for longer than any interval."""
    node, held = await a_node(connection), set()
    lost, late = await a_row(connection), await a_row(connection)
    looks = asyncio.Queue()
    watching = lost_claims(store, node, lambda: held, every_seconds=0.02).subscribe(looks.put_nowait, scheduler=scheduler)
    await a_claim_whose_answer_is_lost(store, node)
    with store.claiming():
        await store.fetch_jobs("default", 1, ["work"], node)
        for _ in range(10):
            await looks.get()
        assert await states(connection, [late]) == ["executing"]
        held.add(late)
    while await states(connection, [lost]) != ["available"]:
        await looks.get()
    for _ in range(5):
        await looks.get()
    assert await states(connection, [lost, late]) == ["available", "executing"]
    watching.dispose()


async def test_nobody_looks_while_no_answer_is_lost_but_seldom(connection, store, scheduler):
    """To look reads the whole table."""
    node, looks = await a_node(connection), asyncio.Queue()
    unknown = await a_row(connection)
    await store.fetch_jobs("default", 1, ["work"], node)
    watching = lost_claims(store, node, set, every_seconds=0.01).subscribe(looks.put_nowait, scheduler=scheduler)
    for _ in range(20):
        assert await looks.get() == 0
    watching.dispose()
    assert await states(connection, [unknown]) == ["executing"]
    watching = lost_claims(store, node, set, every_seconds=0.01, seldom_seconds=0.05).subscribe(
        looks.put_nowait, scheduler=scheduler
    )
    async with asyncio.timeout(60):
        while await looks.get() == 0:
            pass
    watching.dispose()
    assert await states(connection, [unknown]) == ["available"]


async def test_each_answer_that_is_lost_is_looked_for(connection, store, scheduler):
    node, looks = await a_node(connection), asyncio.Queue()
    watching = lost_claims(store, node, set, every_seconds=0.01).subscribe(looks.put_nowait, scheduler=scheduler)
    for _ in range(3):
        await a_row(connection)
        await a_claim_whose_answer_is_lost(store, node)
        async with asyncio.timeout(60):
            while await looks.get() == 0:
                pass
    watching.dispose()


async def a_claim_whose_answer_is_lost(store, node):
    with suppress(ConnectionResetError), store.claiming():
        assert await store.fetch_jobs("default", 1, ["work"], node)
        raise ConnectionResetError
