import asyncio
from uuid import uuid4

from rxjobs.events import JobsRescued
from rxjobs.services.rescue import rescue
from tests.store.ground import a_claimed_row, states, the_row


async def test_a_job_whose_node_nobody_knows_is_rescued(connection, store, scheduler, leadership):
    id_ = await a_claimed_row(connection, uuid4())
    found, events = asyncio.Queue(), []
    watching = rescue(
        store, leadership, {}, every_seconds=0.01, lease_seconds=0.0, emit=events.append, orphans_seconds=0.0
    ).subscribe(found.put_nowait, scheduler=scheduler)
    try:
        assert await asyncio.wait_for(found.get(), 20) == 1
    finally:
        watching.dispose()
    assert await states(connection, [id_]) == ["available"]
    assert [event.reason for event in events if isinstance(event, JobsRescued)] == ["worker_gone"]
    assert "NodeLost" in (await the_row(connection, id_))["errors"]
