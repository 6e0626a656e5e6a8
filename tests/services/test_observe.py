"""How deep the queues are, looked at while somebody wants to know."""

from __future__ import annotations

import asyncio

import pytest

import rxjobs as rj
from rxjobs.awaiting import LoopScheduler
from rxjobs.services.observe import observe


class Watcher:
    def __init__(self, is_watching=True):
        self.is_watching = is_watching
        self.seen = []

    def observe(self, depths):
        self.seen.append(depths)


async def first(dsn, watcher):
    """What one look gives."""
    app = rj.App(dsn, migrate=True)

    @app.job(name="work", queue="mail")
    async def work():
        pass

    async with app:
        await app.enqueue_many([work.new(), work.new(), work.options(delay=60).new()])
        looked = asyncio.get_running_loop().create_future()
        service = observe(app.store, watcher).subscribe(
            looked.set_result, looked.set_exception, scheduler=LoopScheduler(asyncio.get_running_loop())
        )
        count = await asyncio.wait_for(looked, 10)
        service.dispose()
    return count


async def test_the_watcher_is_told_how_many_jobs_stand_in_each_queue_and_state(dsn):
    watcher = Watcher()
    assert await first(dsn, watcher) == 2
    assert watcher.seen == [{("mail", "available"): 2, ("mail", "scheduled"): 1}]


@pytest.mark.parametrize("is_watching", [False])
async def test_nothing_is_counted_while_nobody_watches(dsn, is_watching):
    watcher = Watcher(is_watching)
    assert await first(dsn, watcher) == 0
    assert watcher.seen == []
