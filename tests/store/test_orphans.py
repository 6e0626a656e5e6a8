"""Jobs that are claimed by nobody: they are found like those of a dead node."""

import asyncio
from uuid import uuid4

import asyncpg

from rxjobs.store.statements import statement
from tests.store.ground import SCHEMA, a_claimed_row, a_node, a_row, rescue_some, states


async def a_claim_on_its_way(connection, node):
    """A claim that is done and not yet committed: on a slow disk, or behind a synchronous standby, that may last."""
    transaction = connection.transaction()
    await transaction.start()
    claim = f"UPDATE {SCHEMA}.live_jobs SET state = 'executing', attempt = 1, attempted_at = now(), node = $1"
    await connection.execute(f"{claim} WHERE EXISTS (SELECT FROM {SCHEMA}.nodes WHERE id = $1 AND expires_at > now())", node)
    return transaction


async def test_a_claim_that_is_committed_after_its_node_has_left_is_found(store, connection, ground, leader):
    id_ = await a_row(connection)
    node = await a_node(connection)
    claiming = await asyncpg.connect(ground)
    claim = await a_claim_on_its_way(claiming, node)
    await store.leave(node)
    await claim.commit()
    await claiming.close()
    assert await states(connection, [id_]) == ["executing"]
    assert await store.orphans(*leader) == {node}
    assert [found[0] for found in await store.expired_nodes(0.0)] == [node]
    assert await rescue_some(store, node, 10, *leader) == {id_}
    await store.bury(node)
    assert await states(connection, [id_]) == ["available"]
    assert await store.orphans(*leader) == set()


async def test_the_jobs_of_nodes_that_are_there_are_no_orphans(store, connection, leader, node):
    await a_claimed_row(connection, node)
    await a_claimed_row(connection, await a_node(connection, seconds=-1))
    await a_row(connection, node=uuid4())
    assert await store.orphans(*leader) == set()


async def test_only_the_one_who_leads_takes_orphans_in(store, connection, leader):
    await a_claimed_row(connection, uuid4())
    node, term = leader
    assert await store.orphans(node, term - 1) == set()
    assert len(await store.orphans(node, term)) == 1


async def test_two_who_look_at_once_find_each_orphan_once(store, connection, leader):
    lost = uuid4()
    await a_claimed_row(connection, lost)
    found = await asyncio.gather(store.orphans(*leader), store.orphans(*leader))
    assert sorted(found, key=len) == [set(), {lost}]
    assert statement("orphans", SCHEMA).startswith("-- ")
