"""The registry of nodes, with worker processes that come and go."""

from __future__ import annotations

import os
import platform
import signal
import socket

import pytest

import rxjobs as rj
from rxjobs.testing import fill
from tests.waiting import until

FAST = {"rxjobs_lease_seconds": 2, "rxjobs_heartbeat_seconds": 0.2, "rxjobs_rescue_seconds": 0.3, "rxjobs_poll_seconds": 0.3}


@pytest.fixture
async def app(connection, dsn):
    async with rj.App(dsn) as app:
        yield app


async def test_two_workers_are_listed_with_what_they_do_and_those_that_go_with_how(connection, dsn, start, app):
    await until(lambda: connection.fetchval("SELECT now() - pg_postmaster_start_time() > interval '2 seconds'"))
    workers = {name: start(dsn, rxjobs_node=name, max_demand=4, **FAST) for name in ("a", "b")}
    await until(lambda: connection.fetchval("SELECT count(*) = 2 FROM rxjobs.nodes"))
    await fill(connection, "work", 8, args={"seconds": 0.01})
    await until(lambda: connection.fetchval("SELECT count(*) = 8 FROM rxjobs.finished_jobs"))
    await fill(connection, "thread", 8, args={"seconds": 3.0})

    def in_threads(node):
        return sum(one.usage for one in node.executors if one.type == "thread")

    async def both_run():
        nodes = await app.nodes.list()
        do_run = [node.running == in_threads(node) == 4 and node.loop_delay is not None for node in nodes]
        return nodes if do_run == [True, True] else None

    a, b = await until(both_run)
    assert (a.label, b.label) == ("a", "b")
    for node in (a, b):
        assert (node.pid, node.state, node.gone_at) == (workers[node.label].process.pid, "living", None)
        assert 0 < node.lease <= 2
        assert (node.host, node.python, node.rxjobs) == (socket.gethostname(), platform.python_version(), "0.1.0")
        [pipeline] = node.pipelines
        assert (pipeline.queues, pipeline.held, pipeline.running, pipeline.is_paused) == (("default",), 4, 4, False)
        assert node.queues == ("default",)
        assert (node.failed, node.discarded) == (0, 0)
        assert node.memory > 1_000_000
        assert len(node.load) == 3
        assert node.cpus == os.cpu_count()
        assert node.loop_delay < 30
    assert a.completed + b.completed == 8
    assert {node.last_job.type for node in (a, b) if node.completed} == {"work"}
    assert sum(node.is_leading for node in (a, b)) <= 1
    workers["a"].process.kill()
    workers["b"].process.send_signal(signal.SIGTERM)
    assert await workers["b"].ended() == 0
    last = start(dsn, rxjobs_node="c", **FAST)

    async def is_lost():
        nodes = {node.label: node for node in await app.nodes.list()}
        return nodes if nodes["a"].state == "lost" else None

    nodes = await until(is_lost)
    assert (nodes["b"].state, nodes["b"].completed, nodes["b"].running) == ("left", b.completed + 4, 0)  # what it told at last
    assert nodes["a"].queues == nodes["b"].queues == ("default",)
    gone = sorted("ab", key=lambda label: nodes[label].gone_at, reverse=True)
    await until(lambda: connection.fetchval("SELECT count(*) = 1 FROM rxjobs.nodes WHERE label = 'c'"))
    assert [node.label for node in await app.nodes.list()] == ["c", *gone]
    assert [node.label for node in await app.nodes.list(gone=0)] == ["c"]
    assert last.process.poll() is None


async def test_a_status_that_cannot_be_read_is_shown_as_none(connection, app):
    insert = (
        "INSERT INTO rxjobs.nodes (id, label, pid, expires_at, status) "
        "VALUES (gen_random_uuid(), $1, 1, now() + $2::integer * interval '1 hour', $3)"
    )
    await connection.execute(insert, "strange", 1, '{"running": "many", "later": 1}')
    await connection.execute(insert, "new", 1, '{"running": 3, "later": {"a": 1}}')
    await connection.execute(insert, "doomed", -1, None)
    doomed, new, strange = await app.nodes.list()
    assert (strange.running, strange.host) == (0, None)
    assert new.running == 3
    assert (doomed.state, doomed.lease) == ("expired", None)


async def test_nodes_that_went_a_day_ago_are_forgotten_when_the_next_one_goes(connection, app):
    for label, hours in (("old", 25), ("young", 2)):
        await connection.execute(
            "INSERT INTO rxjobs.gone_nodes (id, label, pid, started_at, gone_at, is_lost, serves) "
            "VALUES (gen_random_uuid(), $1, 1, now() - interval '9 days', now() - $2::integer * interval '1 hour', true, '{}')",
            label, hours,
        )  # fmt: skip
    async with rj.App(app.dsn, node="next").running(app.source("default", max_demand=1)):
        pass
    assert await connection.fetchval("SELECT array_agg(label ORDER BY label) FROM rxjobs.gone_nodes") == ["next", "young"]


@pytest.mark.parametrize("gone", [-1, 86401, True, "1"])
async def test_more_than_a_day_is_not_known(app, gone):
    with pytest.raises(rj.InvalidOption, match=r"nodes\.list: gone is a number from 0 to 86400"):
        await app.nodes.list(gone=gone)
