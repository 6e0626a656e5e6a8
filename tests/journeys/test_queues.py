"""Pause, resume and scale, while jobs run."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

import rxjobs as rj
from rxjobs.events import QueueLimited, QueuePaused, QueueResumed, QueueScaled, QueueStalled
from rxjobs.testing import count, fill
from tests.waiting import until

POLL = 0.2


class Site:
    """A node, and what it begins and ends; its jobs last until they are let go."""

    def __init__(self, dsn, **settings):
        self.app = rj.App(dsn, poll_seconds=POLL, shutdown_grace=5, **settings)
        self.begun, self.ended, self.events = [], [], []
        self.may_end = asyncio.Event()
        self.app.job(name="work")(self.work)
        self.app.job(name="thread", executor=rj.in_threads(1))(self.thread)
        self.app.events.subscribe(self.events.append)

    async def work(self):
        self.begun.append(rj.current_job().id)
        await self.may_end.wait()
        self.ended.append(rj.current_job().id)

    def thread(self):
        self.begun.append(rj.current_job().id)
        while not self.may_end.is_set():
            time.sleep(0.01)

    @asynccontextmanager
    async def running(self, *stages, max_demand=20, concurrency=2):
        stream = self.app.source("default", max_demand=max_demand).pipe(*stages, rj.execute(concurrency=concurrency), rj.ack())
        async with self.app.running(stream) as running:
            try:
                yield running
            finally:
                self.may_end.set()

    def told(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


async def all_completed(connection, jobs):
    """Each at its first attempt: what was given back has cost none."""
    return await connection.fetchval(
        "SELECT count(*) = $1 FROM rxjobs.finished_jobs WHERE state = 'completed' AND attempt = 1 AND errors IS NULL", jobs
    )


async def stands_still(site, polls=4):
    """Nothing begins from now on."""
    begun = len(site.begun)
    await asyncio.sleep(polls * POLL)
    assert len(site.begun) == begun


@pytest.mark.parametrize("notify", [True, False], ids=["notified", "by the poll alone"])
async def test_a_pause_lets_what_runs_end_gives_the_rest_back_and_ends_with_resume(connection, dsn, notify):
    """F39: what was held and had not begun has cost no attempt."""
    site, outside = Site(dsn, notify=notify), rj.App(dsn, notify=notify)
    await fill(connection, "work", 50)
    async with site.running(), outside:
        await until(lambda: len(site.begun) == 2)
        assert await outside.queues.pause("default")
        await until(lambda: connection.fetchval("SELECT count(*) = 2 FROM rxjobs.live_jobs WHERE state = 'executing'"))
        site.may_end.set()
        await until(lambda: len(site.ended) == 2)
        await until(lambda: all_completed(connection, 2))
        await stands_still(site)
        assert await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs WHERE state = 'available' AND attempt = 0") == 48
        assert await outside.queues.resume("default")
        await until(lambda: all_completed(connection, 50))
    assert sorted(site.begun) == sorted(set(site.begun))
    assert len(site.told(QueuePaused)) == len(site.told(QueueResumed)) == 1
    assert not site.told(QueueStalled)


async def test_a_pause_by_the_running_app_itself_holds_as_soon_as_it_returns(connection, dsn):
    site = Site(dsn)
    site.may_end.set()
    await fill(connection, "work", 1000)
    async with site.running(concurrency=1):
        await until(lambda: site.begun)
        await site.app.queues.pause("default")
        await stands_still(site, polls=2)
        await site.app.queues.resume("default")
        await until(lambda: all_completed(connection, 1000))


async def test_a_node_that_starts_while_its_queue_is_paused_claims_nothing(connection, dsn):
    site = Site(dsn)
    await fill(connection, "work", 5)
    async with site.app:
        await site.app.queues.pause("default")
    async with site.running():
        await stands_still(site)
        assert await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs WHERE attempted_at IS NULL") == 5
        await site.app.queues.resume("default")
        await until(lambda: len(site.begun) == 2)
        site.may_end.set()
        await until(lambda: all_completed(connection, 5))


async def test_a_pause_of_one_node_leaves_its_jobs_to_the_others(connection, dsn):
    """F39, for one node: what it held and had not begun runs elsewhere, and does not wait for what it runs."""
    paused, other = Site(dsn, node="here"), Site(dsn, node="there")
    await fill(connection, "work", 21)
    async with paused.running(), other.running(max_demand=1, concurrency=1):
        await until(lambda: len(paused.begun) == 2 and other.begun)
        await other.app.queues.pause("default", node="here")
        other.may_end.set()
        await until(lambda: len(other.ended) == 19)
        assert len(paused.begun) == 2
        assert not other.told(QueuePaused)
        paused.may_end.set()
        await until(lambda: all_completed(connection, 21))
        await fill(connection, "work", 5)
        await until(lambda: all_completed(connection, 26))
        assert len(paused.begun) == 2
        await other.app.queues.resume("default")
        await until(lambda: paused.told(QueueResumed))


async def test_a_pause_by_a_label_holds_for_a_node_that_starts_anew_with_it(connection, dsn):
    site = Site(dsn, node="here")
    async with site.running():
        await site.app.queues.pause("default", node="here")
    await fill(connection, "work", 3)
    async with site.running():
        await stands_still(site)
        await site.app.queues.resume("default", node="here")
        await until(lambda: all_completed(connection, 3))


async def test_what_waits_for_a_thread_does_not_begin_in_a_pause(connection, dsn):
    """F39: a job that was handed to its executor, which has no thread for it yet."""
    site = Site(dsn)
    await fill(connection, "thread", 10)
    async with site.running(concurrency=5):
        await until(lambda: site.begun)
        await until(lambda: count(connection, state="executing"))
        await site.app.queues.pause("default")
        site.may_end.set()
        await until(lambda: all_completed(connection, 1))
        back = "SELECT count(*) = 9 FROM rxjobs.live_jobs WHERE state = 'available' AND attempt = 0"
        await until(lambda: connection.fetchval(back))
        assert len(site.begun) == 1
        await site.app.queues.resume("default")
        await until(lambda: all_completed(connection, 10))


async def test_what_an_earlier_stage_still_has_goes_back_as_well(connection, dsn):
    """F39: stages before the one that runs jobs; those may have waited in line there, or be in the middle of it."""
    site, looked_up = Site(dsn), asyncio.Event()
    asked = []

    async def look_up(job):
        asked.append(job.id)
        await looked_up.wait()

    await fill(connection, "work", 10)
    site.may_end.set()
    async with site.running(rj.enrich(look_up, concurrency=2), max_demand=6):
        await until(lambda: len(asked) == 2)
        await site.app.queues.pause("default")
        await until(lambda: connection.fetchval("SELECT count(*) = 2 FROM rxjobs.live_jobs WHERE state = 'executing'"))
        looked_up.set()
        await until(lambda: connection.fetchval("SELECT count(*) = 10 FROM rxjobs.live_jobs WHERE state = 'available'"))
        assert len(asked) == 2
        assert site.begun == []
        await site.app.queues.resume("default")
        await until(lambda: all_completed(connection, 10))


async def test_batches_that_wait_go_back_too(connection, dsn):
    """F39."""
    app, may_end, batches = rj.App(dsn, poll_seconds=POLL), asyncio.Event(), []
    app.job(name="work")(lambda: None)

    async def write(jobs):
        batches.append(len(jobs))
        await may_end.wait()

    stream = app.source("default", max_demand=10).pipe(rj.buffer(2), rj.execute_batch(write), rj.ack())
    await fill(connection, "work", 10)
    async with app.running(stream):
        await until(lambda: batches)
        await app.queues.pause("default")
        await until(lambda: connection.fetchval("SELECT count(*) = 8 FROM rxjobs.live_jobs WHERE state = 'available'"))
        may_end.set()
        await until(lambda: all_completed(connection, 2))
        assert batches == [2]
        await app.queues.resume("default")
        await until(lambda: all_completed(connection, 10))


async def test_scaling_changes_how_many_are_held_and_asks_for_more_at_once(connection, dsn):
    site = Site(dsn, notify=False)
    await fill(connection, "work", 100)
    async with site.running(max_demand=10, concurrency=100) as running:
        await until(lambda: len(site.begun) == 10)
        assert await site.app.queues.scale("default", max_demand=30)
        await until(lambda: len(site.begun) == 30)
        assert await site.app.queues.scale("default", max_demand=3)
        assert len(running.held_ids) == 30  # what is held runs to its end
        assert len(site.begun) == 30
        site.may_end.set()
        await until(lambda: all_completed(connection, 100))
        site.may_end.clear()
        await fill(connection, "work", 20)
        await until(lambda: len(site.begun) == 103)
        await stands_still(site)
        assert await site.app.queues.scale("default", max_demand=None)
        await until(lambda: len(site.begun) == 110)
        await stands_still(site)
        site.may_end.set()
        await until(lambda: all_completed(connection, 120))
    assert [event.max_demand for event in site.told(QueueScaled)] == [30, 3, None]


async def test_each_node_tells_of_limits_that_are_asked_changed_and_lifted(connection, dsn):
    site, other = Site(dsn), Site(dsn)
    async with site.running(), other.running():
        queues = site.app.queues
        assert await queues.limit("default", concurrency=7)
        assert not await queues.limit("default", concurrency=7)
        assert await queues.rate("default", 9, per=60, by="args.tenant")
        await until(lambda: len(other.told(QueueLimited)) >= 1)
        assert await queues.pause("default")  # which is another matter
        assert await queues.rate("default", None)
        await queues.share("default", by="args.tenant")
        await queues.share("default", by=None)
        await queues.limit("default", concurrency=None)
        await until(lambda: other.told(QueueLimited)[-1].concurrency is None)
    told = [(one.queue, one.concurrency, one.by, one.each_rate, one.is_shared) for one in site.told(QueueLimited)]
    assert told == [
        ("default", 7, None, None, False),
        ("default", 7, "args.tenant", "9 per 60 s", False),
        ("default", 7, None, None, False),
        ("default", 7, "args.tenant", None, True),
        ("default", 7, None, None, False),
        ("default", None, None, None, False),
    ]
    assert {one.node for one in site.told(QueueLimited)}.isdisjoint({one.node for one in other.told(QueueLimited)})


async def test_a_forged_notification_pauses_nothing(connection, dsn):
    """F42: it only has a node look at the table."""
    site = Site(dsn)
    site.may_end.set()
    async with site.running():
        for payload in ("!", "!default", '{"pause": "default"}'):
            await connection.execute("SELECT pg_notify('rxjobs', $1)", payload)
        await fill(connection, "work", 5)
        await until(lambda: all_completed(connection, 5))
    assert not site.told(QueuePaused)
