"""What a running node tells of itself: numbers that are read when somebody collects."""

from __future__ import annotations

import asyncio

import pytest

import rxjobs as rj
from rxjobs.telemetry import names
from tests.telemetry.seen import by, points, until, until_done


def value(reader, name, **attributes):
    """The number of one point; None where it is not told."""
    point = points(reader, name).get(by(**attributes))
    return None if point is None else point.value


async def test_a_running_node_tells_of_its_queues_stages_and_places(app, reader):
    release = asyncio.Event()

    @app.job(name="wait", queue="mail")
    async def wait(n):
        await release.wait()

    stages = [rj.filter(lambda job: job.args["n"] < 8, name="few"), rj.execute(concurrency=2), rj.ack()]
    app.pipeline(app.source("mail", max_demand=6).pipe(*stages))
    async with app:
        await app.enqueue_many([wait.new(n) for n in range(5)])
        async with app.running():
            few = {"rxjobs__stage__name": "few"}
            await until(lambda: value(reader, "rxjobs.stage.items", rxjobs__stage__disposition="in", **few) == 5)
            running = {"messaging__destination__name": "mail", "rxjobs__job__kind": "wait"}
            await until(lambda: value(reader, "rxjobs.job.active", **running) == 2)
            assert value(reader, "rxjobs.queue.limit", messaging__destination__name="mail") == 2
            assert value(reader, "rxjobs.queue.paused", messaging__destination__name="mail") == 0
            assert value(reader, "rxjobs.demand.outstanding", messaging__destination__name="mail") == 1
            assert value(reader, "rxjobs.demand.fulfilled", messaging__destination__name="mail") == 5
            assert value(reader, "rxjobs.stage.buffer.usage", rxjobs__stage__name="execute") == 3
            assert value(reader, "rxjobs.stage.items", rxjobs__stage__name="execute", rxjobs__stage__disposition="in") == 2
            assert value(reader, "rxjobs.stage.items", rxjobs__stage__name="execute", rxjobs__stage__disposition="out") == 0
            assert value(reader, "rxjobs.executor.usage", rxjobs__executor__type="async") == 2
            assert value(reader, "rxjobs.executor.limit", rxjobs__executor__type="async") == 2
            assert value(reader, "rxjobs.executor.usage", rxjobs__executor__type="thread") == 0
            await app.queues.pause("mail")
            await until(lambda: value(reader, "rxjobs.queue.paused", messaging__destination__name="mail") == 1)
            await until(lambda: value(reader, "rxjobs.demand.outstanding", messaging__destination__name="mail") == 0)
            await app.queues.resume("mail")
            release.set()
            await until_done(app, 5)
            await until(lambda: value(reader, "rxjobs.ack.pending", messaging__destination__name="mail") == 0)
            assert value(reader, "rxjobs.stage.items", rxjobs__stage__name="few", rxjobs__stage__disposition="dropped") == 0
        for name in (
            "rxjobs.notify.queue.usage",
            "rxjobs.queue.limit",
            "rxjobs.leader.status",
            "rxjobs.breaker.state",
            "db.client.connection.count",
        ):
            assert points(reader, name) == {}, "a node that has ended tells nothing"


async def test_a_node_tells_whether_it_leads_and_listens_and_what_its_connections_do(app, reader):
    @app.job(name="work", queue="mail", breaker=rj.Breaker(fail_max=1, reset_timeout=60))
    async def work():
        raise OSError

    async with app, app.running():
        await until(lambda: value(reader, "rxjobs.leader.status") == 1)
        await until(lambda: value(reader, "rxjobs.notify.connected") == 1)
        assert value(reader, "rxjobs.notify.reconnects") == 0
        await until(lambda: value(reader, "rxjobs.notify.queue.usage") is not None)
        assert 0 <= value(reader, "rxjobs.notify.queue.usage") < 1
        await until(lambda: value(reader, "rxjobs.database.horizon.age") is not None)
        assert value(reader, "rxjobs.database.horizon.age") >= 0
        await until(lambda: value(reader, "rxjobs.leader.transitions", rxjobs__leader__event="acquired") == 1)
        state = {"rxjobs__breaker__name": "work"}
        assert value(reader, "rxjobs.breaker.state", rxjobs__breaker__state="closed", **state) == 1
        await work.enqueue()
        await until(lambda: value(reader, "rxjobs.breaker.state", rxjobs__breaker__state="open", **state) == 1)
        assert value(reader, "rxjobs.breaker.state", rxjobs__breaker__state="closed", **state) == 0
        await until(lambda: value(reader, "rxjobs.breaker.transitions", rxjobs__breaker__state="open", **state) == 1)
        await until(lambda: points(reader, "rxjobs.notify.delay"))
        await until(lambda: points(reader, "rxjobs.eventloop.delay"))
        await until(lambda: points(reader, "rxjobs.queue.oldest_job.age"))
        pools = {dict(key)[names.POOL_NAME] for key in points(reader, "db.client.connection.max")}
        assert pools == {"pool", "claims", "inserts", "reserved"}
        assert value(reader, "db.client.connection.max", db__client__connection__pool__name="pool") == 8
        assert points(reader, "db.client.connection.use_time")
        await until(lambda: {"elect", "observe"} <= tasks(reader))


def tasks(reader):
    """What of its own upkeep a node has told of."""
    return {dict(key)[names.MAINTENANCE_TASK] for key in points(reader, "rxjobs.maintenance.duration")}


async def test_what_is_enqueued_is_counted_by_what_came_of_it(app, reader):
    @app.job(name="once", queue="mail", unique=rj.Unique())
    async def once():
        pass

    @app.job(name="renewed", queue="mail", unique=rj.Unique(on_conflict="replace"))
    async def renewed():
        pass

    async with app:
        for job in (once, once, renewed, renewed, renewed):
            await job.options(delay=60).enqueue()
        with pytest.raises(Exception, match="refused"):
            await app._signals.metrics.around_insert([once.new()], refuse)

    def count(kind, result):
        of = {"messaging__destination__name": "mail", "rxjobs__job__kind": kind, "rxjobs__enqueue__result": result}
        return value(reader, "rxjobs.job.enqueues", **of)

    assert [count("once", "inserted"), count("once", "deduplicated")] == [1, 1]
    assert [count("renewed", "inserted"), count("renewed", "replaced")] == [1, 2]
    sent = {"messaging__system": "rxjobs", "messaging__operation__name": "enqueue", "messaging__destination__name": "mail"}
    assert value(reader, "messaging.client.sent.messages", **sent) == 5
    assert value(reader, "messaging.client.sent.messages", error__type="RuntimeError", **sent) == 1
    durations = points(reader, "messaging.client.operation.duration")
    assert durations[by(messaging__operation__type="send", **sent)].count == 5


async def refuse(news):
    raise RuntimeError("refused")


async def test_only_a_leader_tells_depths_and_a_queue_that_is_empty_now_has_the_age_zero(app, reader):
    @app.job(name="work", queue="mail")
    async def work():
        pass

    async with app, app.running():
        await until(lambda: value(reader, "rxjobs.leader.status") == 1)
        metrics = app._signals.metrics
        metrics.observe({("mail", "available"): (2, 7.5), ("text", "discarded"): (1, None)})
        assert value(reader, "rxjobs.queue.oldest_job.age", messaging__destination__name="mail") == 7.5
        assert value(reader, "rxjobs.queue.depth", messaging__destination__name="text", rxjobs__job__state="discarded") == 1
        metrics.observe({})
        assert value(reader, "rxjobs.queue.oldest_job.age", messaging__destination__name="mail") == 0
        metrics.observe(None)
        assert points(reader, "rxjobs.queue.oldest_job.age") == points(reader, "rxjobs.queue.depth") == {}


async def test_listeners_that_raise_are_counted_by_the_event(app, reader):
    def broken(event):
        raise RuntimeError

    app.events.subscribe(broken)
    async with app, app.running(app.source("mail").pipe(rj.ack())):
        # left out after the third time
        await until(lambda: sum(one.value for one in points(reader, "rxjobs.telemetry.handler.failures").values()) == 3)
