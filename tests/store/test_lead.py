import asyncio

from tests.store.ground import a_claimed_row, a_leader, a_node, a_row, rescue_some, states

LATE = "UPDATE rxjobs.live_jobs SET scheduled_at = now() - interval '1 second' WHERE id = $1"


async def test_of_many_that_ask_at_once_one_leads(store, connection):
    nodes = [await a_node(connection) for _ in range(20)]
    terms = await asyncio.gather(*(store.lead(node, 60.0) for node in nodes))
    assert [term for term in terms if term is not None] == [1]


async def test_a_leader_goes_on_in_its_term_and_another_begins_the_next(store, connection):
    first, second = await a_node(connection), await a_node(connection)
    assert [await store.lead(first, 60.0) for _ in range(3)] == [1, 1, 1]
    assert await store.lead(second, 60.0) is None
    await store.resign(first)
    assert await store.lead(second, 60.0) == 2
    assert await store.lead(first, 60.0) is None


async def test_to_resign_for_another_changes_nothing(store, connection):
    first, second = await a_node(connection), await a_node(connection)
    await store.lead(first, 60.0)
    await store.resign(second)
    assert await store.lead(second, 60.0) is None


async def test_a_leader_whose_time_ran_out_begins_a_new_term_since_others_may_have_led(store, connection):
    node = await a_node(connection)
    assert await store.lead(node, 0.0) == 1
    assert await store.lead(node, 60.0) == 2


async def test_what_a_leader_of_an_old_term_writes_changes_nothing(store, connection):
    old = await a_leader(connection, term=1)
    await a_leader(connection, node=await a_node(connection), term=2)
    dead = await a_node(connection, seconds=-1)
    lost, late = await a_claimed_row(connection, dead), await a_row(connection, state="scheduled")
    await connection.execute(LATE, late)
    assert (await store.stage_jobs(10, *old))[0] == 0
    assert await rescue_some(store, dead, 10, *old) == set()
    assert (await store.prune_jobs(0.0, 10, *old)).states.total() == 0
    assert await states(connection, [lost, late]) == ["executing", "scheduled"]


async def test_what_a_leader_writes_after_its_time_changes_nothing(store, connection):
    over = await a_leader(connection, seconds=-1)
    late = await a_row(connection, state="scheduled")
    await connection.execute(LATE, late)
    assert (await store.stage_jobs(10, *over))[0] == 0
