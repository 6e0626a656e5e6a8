import asyncio

from rxjobs.events import JobsRoutable, JobsUnroutable, QueueServed, QueueUnserved
from rxjobs.services.unserved import unserved, unserved_so_far
from tests.store.ground import a_node, a_row


async def a_server(connection, serves, **lease):
    node = await a_node(connection, **lease)
    await connection.execute("UPDATE rxjobs.nodes SET serves = $2::text::jsonb WHERE id = $1", node, serves)


async def test_jobs_that_nobody_takes_are_told_of_once_a_step(connection, store, scheduler, leadership, caplog):
    """F32, and as taskiq#569 (row 65): what nobody knows is to be seen."""
    events, looks = [], asyncio.Queue()
    await a_server(connection, '{"mail": ["send"], "slow": ["send"]}')
    await a_server(connection, '{"mail": ["later"], "nobody": ["send"]}', seconds=-1)  # its lease is over
    old = {"scheduled_at": await connection.fetchval("SELECT now() - interval '1 hour'")}
    for queue, type_ in (("mail", "send"), ("mail", "later"), ("mail", "later"), ("nobody", "send"), ("nobody", "later")):
        await a_row(connection, queue=queue, type=type_, **old)
    await a_row(connection, queue="mail", type="young")
    await a_row(connection, queue="mail", type="waits", state="scheduled", **old)
    watching = unserved(store, leadership, emit=events.append, every_seconds=0.01).subscribe(looks.put_nowait, scheduler=scheduler)

    async def looked(count):
        async with asyncio.timeout(60):
            while await looks.get() != count:
                pass

    for _ in range(3):
        await looked(4)
    assert {(type(event), event.queue, event.count) for event in events} == {
        (JobsUnroutable, "mail", 2), (QueueUnserved, "nobody", 2),
    }  # fmt: skip
    assert len(events) == 2
    events.clear()
    await a_server(connection, '{"mail": ["later"], "nobody": ["send"]}')
    await looked(1)  # the queue has a reader now, who knows one of the two types
    assert {(type(event), event.queue) for event in events} == {
        (JobsRoutable, "mail"), (QueueServed, "nobody"), (JobsUnroutable, "nobody"),
    }  # fmt: skip
    await connection.execute("DELETE FROM rxjobs.live_jobs WHERE queue = 'nobody'")
    await looked(0)
    watching.dispose()
    assert type(events[-1]) is JobsRoutable
    told = [record.message for record in caplog.records if record.name == "rxjobs.unserved"]
    assert len(told) == 6


async def test_who_does_not_lead_does_not_look(connection, store, scheduler, leadership):
    await a_row(connection, scheduled_at=await connection.fetchval("SELECT now() - interval '1 hour'"))
    leadership.asked(None, 0.0)
    looks = asyncio.Queue()
    watching = unserved(store, leadership, emit=lambda event: None, every_seconds=0.01).subscribe(
        looks.put_nowait, scheduler=scheduler
    )
    assert [await looks.get() for _ in range(3)] == [0, 0, 0]
    watching.dispose()


async def test_whoever_looks_on_hears_early_what_nobody_takes_so_far_and_once(connection, store, scheduler, leadership, caplog):
    await a_server(connection, '{"mail": ["send"]}')
    old = {"scheduled_at": await connection.fetchval("SELECT now() - interval '1 minute'")}
    await a_row(connection, queue="mail", type="send", **old)
    await a_row(connection, queue="mial", type="send", **old)
    for queue in ("mail", "default"):  # to start a node for that queue would not help
        await a_row(connection, queue=queue, type="__main__.send", **old)
    looks = asyncio.Queue()
    watching = unserved_so_far(store, leadership, first_seconds=0.02).subscribe(looks.put_nowait, scheduler=scheduler)
    async with asyncio.timeout(60):
        assert [await looks.get() for _ in range(3)] == [0, 3, 3]
    watching.dispose()
    told = sorted(record.getMessage() for record in caplog.records if record.name == "rxjobs.unserved")
    assert len(told) == 3
    assert "of queue mial are ready" in told[0]
    assert "rxjobs run MODULE:APP --queue mial=10" in told[0]
    for queue, message in zip(("default", "mail"), told[1:], strict=True):
        assert f"of type __main__.send in queue {queue}" in message
        assert "@app.job(name=…)" in message
