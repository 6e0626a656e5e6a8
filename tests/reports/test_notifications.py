"""What befell others when notifications did not come, or came to all at once. See docs/faults.md."""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import AsyncExitStack

import asyncpg

import rxjobs as rj
from rxjobs.events import QueueFetched
from rxjobs.sources.pull import REST
from tests.journeys.recording import Recording
from tests.proxy import Proxy
from tests.waiting import until

BUSY = 5.0
"""Seconds that a machine with much else to do may add."""


async def test_a_thousand_jobs_whose_notifications_are_all_swallowed_start_by_the_poll(dsn):
    """As oban#493, #832, #842: without notifications jobs stayed where they were until a restart."""
    poll = 0.5
    await rj.App(dsn).migrate()
    connection = await asyncpg.connect(dsn)
    async with Proxy(dsn) as proxy:
        app = rj.App(proxy.dsn, poll_seconds=poll)

        @app.job
        async def work() -> None: ...

        wakes = list[str | None]()
        app.woken.subscribe(wakes.append)
        async with app.running(app.source("default", max_demand=500).pipe(rj.execute(concurrency=500), rj.ack())):
            await until(lambda: wakes)  # it listens
            proxy.swallow("A")
            for _ in range(10):
                await app.enqueue_many([work.new() for _ in range(100)])
                await asyncio.sleep(0.1)  # a part of a poll: each hundred finds the worker at another moment of it
            await until(lambda: connection.fetchval("SELECT count(*) = 1000 FROM rxjobs.finished_jobs"))
        assert proxy.swallowed >= 10
    late = await connection.fetch(
        "SELECT extract(epoch FROM attempted_at - inserted_at)::float8 AS late FROM rxjobs.finished_jobs WHERE state = 'completed'"
    )
    await connection.close()
    found = [row["late"] for row in late]
    print(f"started after {statistics.median(found):.2f} s, {max(found):.2f} s at most, by a poll of {poll} s")
    assert len(found) == 1_000
    assert max(found) < 2 * poll + BUSY


async def test_twenty_sources_that_hear_one_signal_ask_once_each(dsn):
    """As oban v2.23: one signal, and every producer fetched in lock step, whether there was anything or not."""
    app = rj.App(dsn, migrate=True, poll_seconds=600)
    ran = list[int]()

    @app.job
    async def work(n: int) -> None:
        ran.append(n)

    sources = [Recording(rj.PostgresSource(app, "default")) for _ in range(20)]
    pipelines = [rj.pull(source, max_demand=10).pipe(rj.execute(), rj.ack()) for source in sources]
    wakes = list[str | None]()
    app.woken.subscribe(wakes.append)
    async with app.running(*pipelines):
        await until(lambda: wakes == [None] and all(source.asked for source in sources) and is_quiet(sources))  # as they begin
        before = [len(source.asked) for source in sources]
        for n in range(5):
            await work.enqueue(n)
            await until(lambda: len(ran) == n + 1 and asked_since(before, sources) >= {n + 1} and is_quiet(sources))  # noqa: B023
    assert wakes == [None, *["default"] * 5]
    assert asked_since(before, sources) == {5}
    assert {source.most_fetching for source in sources} == {1}


async def test_a_herd_of_enqueues_has_each_of_twenty_sources_ask_in_vain_no_more_than_fifty_times_a_second(dsn):
    """F40: each of the clients wakes all sources, and one source has room for what all of them bring."""
    seconds, sources, clients = 2.0, 20, 8
    app = rj.App(dsn, migrate=True, poll_seconds=600)
    app.job(name="work")(nothing)
    fetches = list[QueueFetched]()
    app.events.subscribe(lambda event: fetches.append(event) if isinstance(event, QueueFetched) else None)
    async with (
        AsyncExitStack() as stack,
        app.running(
            *(rj.pull(rj.PostgresSource(app, "default"), max_demand=100).pipe(rj.execute(), rj.ack()) for _ in range(sources))
        ),
    ):
        enqueuers = [await stack.enter_async_context(rj.App(dsn)) for _ in range(clients)]
        began = time.monotonic()
        enqueued = sum(await asyncio.gather(*(enqueue_until(one, app, began + seconds) for one in enqueuers)))
        took = time.monotonic() - began
        await until(lambda: sum(len(one.jobs) for one in fetches) == enqueued)
    in_vain = [one for one in fetches if one.trigger == "notify" and not one.jobs]
    print(
        f"{sources} sources, {enqueued / took:.0f} enqueues/s one by one: {len(fetches) / took:.0f} fetches/s, "
        f"{len(fetches) / took / sources * 0.02:.2f} a source in 20 ms, {len(in_vain) / len(fetches):.0%} in vain"
    )
    assert len(in_vain) <= sources * (took / REST + 2)


async def nothing() -> None: ...


async def enqueue_until(client: rj.App, app: rj.App, end: float) -> int:
    done = 0
    while time.monotonic() < end:
        await client.enqueue(app.definition("work").new())
        done += 1
    return done


def asked_since(before: list[int], sources: list[Recording]) -> set[int]:
    """How often each source was asked since then."""
    return {len(source.asked) - then for source, then in zip(sources, before, strict=True)}


def is_quiet(sources: list[Recording]) -> bool:
    return not any(source.fetching or source.held for source in sources)
