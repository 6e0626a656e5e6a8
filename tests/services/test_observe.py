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

    def observe(self, depths, limits=None):
        self.seen.append(depths)
        self.limits = limits


async def first(dsn, watcher, is_leading=True):
    """What one look gives."""
    app = rj.App(dsn, migrate=True)

    @app.job(name="work", queue="mail")
    async def work():
        pass

    async with app:
        await app.enqueue_many([work.new(), work.new(), work.options(delay=60).new()])
        await app.queues.limit("mail", concurrency=5)
        await app.queues.rate("mail", 60, per=30)
        looked = asyncio.get_running_loop().create_future()
        service = observe(app.store, watcher, lambda: is_leading).subscribe(
            looked.set_result, looked.set_exception, scheduler=LoopScheduler(asyncio.get_running_loop())
        )
        count = await asyncio.wait_for(looked, 10)
        service.dispose()
    return count


async def test_the_watcher_is_told_how_many_jobs_stand_in_each_queue_and_state(dsn):
    watcher = Watcher()
    assert await first(dsn, watcher) == 2
    (depths,) = watcher.seen
    assert {key: jobs for key, (jobs, _) in depths.items()} == {("mail", "available"): 2, ("mail", "scheduled"): 1}
    assert 0 <= depths["mail", "available"][1] < 60
    assert depths["mail", "scheduled"][1] is None
    assert watcher.limits == {"mail": (5, 2.0)}


async def test_a_node_that_does_not_lead_counts_nothing_and_has_the_watcher_forget(dsn):
    watcher = Watcher()
    assert await first(dsn, watcher, is_leading=False) == 0
    assert watcher.seen == [None]


@pytest.mark.parametrize("is_watching", [False])
async def test_nothing_is_counted_while_nobody_watches(dsn, is_watching):
    watcher = Watcher(is_watching)
    assert await first(dsn, watcher) == 0
    assert watcher.seen == []
