import asyncio

from rxjobs.services.claims import lost_claims
from tests.store.ground import a_node, a_row, states


async def test_a_claim_is_lost_only_when_its_answer_can_not_come_any_more(connection, store, scheduler):
    """However late the answer comes: the loop may be blocked, or the network slow, for longer than any interval."""
    node, held = await a_node(connection), set()
    lost, late = await a_row(connection), await a_row(connection)
    looks = asyncio.Queue()
    watching = lost_claims(store, node, lambda: held, every_seconds=0.02).subscribe(looks.put_nowait, scheduler=scheduler)
    await store.fetch_jobs("default", 1, ["work"], node)  # its answer is thrown away
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
