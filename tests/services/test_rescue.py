import asyncio
import time

import pytest

from rxjobs.backoff import default_backoff
from rxjobs.events import JobsRescued, NodeLost
from rxjobs.services import rescue as service
from rxjobs.services.lead import Leadership
from rxjobs.services.rescue import rescue
from rxjobs.store.database import Database
from rxjobs.store.store import Store
from rxjobs.testing import job_type
from tests.proxy import Proxy
from tests.store.ground import FAILS_TWICE, SCHEMA, a_claimed_row, a_node, states

RESCUED = '[{"attempt": 1, "type": "rxjobs.NodeLost"}]'


async def rescued(store, own, scheduler, events, looks=2, definitions=()):
    """What the first looks of the service found."""
    found = asyncio.Queue()
    leadership = Leadership(own, 600.0, events.append)
    leadership.asked(await store.lead(own, 600.0), time.monotonic())
    watching = rescue(store, leadership, dict(definitions), every_seconds=0.01, lease_seconds=0.0, emit=events.append).subscribe(
        found.put_nowait, scheduler=scheduler
    )
    try:
        return [await asyncio.wait_for(found.get(), 20) for _ in range(looks)]
    finally:
        watching.dispose()


async def test_the_jobs_of_dead_nodes_are_taken_and_told_and_the_nodes_removed(connection, store, scheduler):
    own, dead = await a_node(connection), [await a_node(connection, seconds=-1, label=f"n{n}") for n in range(2)]
    ids = [await a_claimed_row(connection, node) for node in dead for _ in range(3)]
    its = await a_claimed_row(connection, own)
    events = []
    assert await rescued(store, own, scheduler, events) == [6, 0]
    assert await states(connection, [*ids, its]) == ["available"] * 6 + ["executing"]
    assert [row["id"] for row in await connection.fetch("SELECT id FROM rxjobs.nodes")] == [own]
    assert sorted(event.node for event in events if isinstance(event, NodeLost)) == sorted(map(str, dead))
    told = [event for event in events if isinstance(event, JobsRescued)]
    assert sorted(id_ for event in told for id_ in event.ids) == ids
    assert {event.reason for event in told} == {"heartbeat_lost"}


async def test_a_node_takes_nothing_from_itself(connection, store, scheduler):
    own = await a_node(connection, seconds=-1)
    its = await a_claimed_row(connection, own)
    assert await rescued(store, own, scheduler, []) == [0, 0]
    assert await states(connection, [its]) == ["executing"]


async def test_many_nodes_at_once_take_each_job_once_since_one_leads(connection, store, scheduler):
    dead = await a_node(connection, seconds=-1)
    ids = [await a_claimed_row(connection, dead) for _ in range(50)]
    owns = [await a_node(connection) for _ in range(4)]
    found = await asyncio.gather(*(rescued(store, own, scheduler, []) for own in owns))
    assert sum(map(sum, found)) == 50
    errors = await connection.fetch("SELECT jsonb_array_length(errors) FROM rxjobs.live_jobs WHERE id = ANY ($1::bigint[])", ids)
    assert [row[0] for row in errors] == [1] * 50


async def test_one_orphan_behind_ten_thousand_jobs_of_the_living_is_rescued_in_one_sweep(connection, store, scheduler):
    """As river#1258 (row 12): nobody's page is filled by jobs that are none of its business."""
    own, alive, dead = await a_node(connection), await a_node(connection), await a_node(connection, seconds=-1)
    await connection.execute(
        "INSERT INTO rxjobs.live_jobs (type, state, node, attempt, attempted_at) "
        "SELECT 'long', 'executing', $1, 1, now() FROM generate_series(1, 10000)",
        alive,
    )
    orphan = await a_claimed_row(connection, dead)
    assert await rescued(store, own, scheduler, [], looks=1) == [1]
    assert await states(connection, [orphan]) == ["available"]
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs WHERE state = 'executing'") == 10_000


async def test_a_sweep_that_meets_serialization_failures_is_finished(connection, store, scheduler, caplog):
    """As oban#1030 (row 6): 40001 twice, and then all of it."""
    own, dead = await a_node(connection), await a_node(connection, seconds=-1)
    ids = [await a_claimed_row(connection, dead) for _ in range(20)]
    await connection.execute(FAILS_TWICE)
    assert await rescued(store, own, scheduler, [], looks=1) == [20]
    assert await states(connection, ids) == ["available"] * 20
    assert "could not serialize access" in caplog.text


async def test_jobs_are_told_of_though_the_answer_to_their_rescue_was_lost(connection, store, dsn, scheduler, monkeypatch, caplog):
    """Each batch is committed, and its link cut before the answer comes; some of its jobs run again before it is asked again."""
    monkeypatch.setattr(service, "BATCH", 4)
    own, dead = await a_node(connection), await a_node(connection, seconds=-1)
    ids = [await a_claimed_row(connection, dead, max_attempts=1 + n % 2) for n in range(10)]
    events = []
    async with Proxy(dsn) as proxy:
        database = Database(proxy.dsn)
        await database.open()
        cut = [proxy.cut_after("-- Take from the dead node") for _ in range(3)]
        assert await rescued(Store(database, SCHEMA), own, scheduler, events, looks=1) == [10]
        await database.close()
    assert all(trap.sprung.is_set() for trap in cut)
    assert await states(connection, ids) == ["discarded", "available"] * 5
    told = [event.ids for event in events if isinstance(event, JobsRescued)]
    assert [len(one) for one in told] == [4, 4, 2]
    assert [id_ for one in told for id_ in one] == ids
    assert "10 jobs were taken from it" in caplog.text


async def test_a_job_that_is_rescued_again_waits_for_the_backoff_of_its_type(connection, store, scheduler):
    """Where this node knows the type; else, or where its backoff raises, for the default one."""

    async def work() -> None: ...

    asked = []

    def backoff(attempt, error):
        asked.append((attempt, error))
        return 1000.0 + attempt

    types = {
        "own": job_type(work, backoff=backoff),
        "broken": job_type(work, backoff=lambda attempt, error: 1 / 0),
        "plain": job_type(work),
    }
    own, dead = await a_node(connection), await a_node(connection, seconds=-1)
    its = {
        type_: await a_claimed_row(connection, dead, attempt=40, type=type_, max_attempts=200, errors=RESCUED)
        for type_ in (*types, "unknown")
    }
    first = await a_claimed_row(connection, dead, type="own")
    assert await rescued(store, own, scheduler, [], looks=1, definitions=types) == [5]
    rows = await connection.fetch("SELECT id, extract(epoch FROM scheduled_at - now())::float8 AS wait FROM rxjobs.live_jobs")
    waits = {row["id"]: row["wait"] for row in rows}
    assert waits[its["own"]] == pytest.approx(1040, abs=60)
    assert waits[first] <= 0
    least = default_backoff(40, 200) / 1.1  # the 40th of 200 attempts is as the 4th of 20
    for type_ in ("broken", "plain", "unknown"):
        assert 0.8 * least < waits[its[type_]] <= 1.2 * least
    assert set(asked) == {(40, None), (1, None)}
    assert await states(connection, [*its.values(), first]) == ["retryable"] * 4 + ["available"]
