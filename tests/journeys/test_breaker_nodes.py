"""Breakers that several nodes share, in processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

import rxjobs as rj
from rxjobs.testing import fill
from tests.journeys.conftest import Line, Worker
from tests.waiting import until

SCRIPT = Path(__file__).with_name("breaker_worker.py")


@pytest.fixture
def down(tmp_path):
    """What the jobs depend on is down while this file is there."""
    path = tmp_path / "down"
    path.touch()
    return path


async def state(connection):
    return await connection.fetchval("SELECT state FROM rxjobs.breakers WHERE type = 'fragile'")


async def opened_at(connection):
    row = await connection.fetchrow("SELECT state, opened_at FROM rxjobs.breakers WHERE type = 'fragile'")
    return row["opened_at"].timestamp() if row is not None and row["state"] == "open" else None


def lines(workers: Iterable[Worker], what: str) -> list[Line]:
    return sorted((line for worker in workers for line in worker.lines(what)), key=lambda line: line.at)


async def charged(connection) -> int:
    """How many attempts the rows were charged."""
    return await connection.fetchval("SELECT coalesce(sum(attempt), 0) FROM rxjobs.jobs WHERE type = 'fragile'")


async def charged_as_begun(connection, workers) -> bool:
    return await charged(connection) == len(lines(workers, "start"))


async def living(connection, count):
    return await connection.fetchval("SELECT count(*) FROM rxjobs.nodes WHERE serves <> '{}'") == count


@pytest.mark.parametrize("notify", ["on", "off"])
async def test_failures_that_are_spread_over_nodes_open_it_on_all_of_them(connection, dsn, start, down, notify):
    reset, queues = 2.0, ["one", "two", "three"]
    workers = [
        start(dsn, script=SCRIPT, down=down, queue=queue, fail_max=9, reset=reset, rxjobs_notify=notify, rxjobs_poll_seconds=0.5)
        for queue in queues
    ]
    await until(lambda: living(connection, 3))
    for queue in queues:  # each node sees three, which is far from enough by itself
        async with connection.transaction():  # else a node may try one again before it is told not to
            await fill(connection, "fragile", 3, args={}, queue=queue)
            await connection.execute("UPDATE rxjobs.live_jobs SET max_attempts = 1 WHERE queue = $1", queue)
    opened = await until(lambda: opened_at(connection))
    assert {len(worker.ids("start")) for worker in workers} == {3}
    for queue in queues:
        await fill(connection, "fragile", 20, args={}, queue=queue)
        await fill(connection, "sturdy", 20, args={}, queue=queue)
    await until(lambda: len(lines(workers, "sturdy")) == 60)
    await until(lambda: len(lines(workers, "start")) > 9)  # the first probe
    late = [line for line in lines(workers, "start") if opened + 1.0 < line.at < opened + reset - 0.1]
    assert late == [], f"started while it was open, since {opened}"
    down.unlink()
    await until(lambda: len({line.id for line in lines(workers, "end")}) == 69)
    await until(lambda: charged_all(connection, 69))
    assert await charged(connection) == len(lines(workers, "start"))
    assert await state(connection) == "closed"


async def charged_all(connection, count):
    done = "SELECT count(*) FROM rxjobs.finished_jobs WHERE type = 'fragile'"
    return await connection.fetchval(done) == count


def most_at_once(workers) -> int:
    """How many ran at once at most."""
    moments = sorted([(line.at, 1) for line in lines(workers, "start")] + [(line.at, -1) for line in lines(workers, "end")])
    running = most = 0
    for _, step in moments:
        running += step
        most = max(most, running)
    return most


@pytest.mark.parametrize("probes", [1, 3])
async def test_of_ten_thousand_ready_jobs_exactly_the_probes_run_on_two_nodes(connection, dsn, start, down, probes):
    reset = 1.0
    workers = [start(dsn, script=SCRIPT, down=down, reset=reset, probes=probes, rxjobs_poll_seconds=0.5) for _ in range(2)]
    await until(lambda: living(connection, 2))
    await fill(connection, "fragile", 5, args={"seconds": 0.1})
    opened = await until(lambda: opened_at(connection))
    before = len(lines(workers, "start"))
    await fill(connection, "fragile", 10_000, args={"seconds": 0.4})
    await fill(connection, "sturdy", 2_000, args={})
    await until(lambda: len(lines(workers, "sturdy")) == 2_000)

    def probed() -> list[Line]:
        """What began earlier is no probe: the other node had not yet heard that it is open."""
        return [line for line in lines(workers, "start") if line.at >= opened + reset]

    await until(lambda: len(probed()) >= 3 * probes)
    await until(lambda: opened_at(connection))
    rounds = probed()
    # those of one round start together, and the next come when it has been open again
    groups: list[list[Line]] = []
    for line in rounds:
        if groups and line.at - groups[-1][0].at < 0.4:
            groups[-1].append(line)
        else:
            groups.append([line])
    assert {len(group) for group in groups} == {probes}, groups
    gaps = [second[0].at - first[-1].at for first, second in pairwise(groups)]
    assert min(gaps) >= reset, gaps
    print(f"{len(groups)} rounds of {probes}, {min(gaps):.2f} to {max(gaps):.2f} s apart")
    await until(lambda: charged_as_begun(connection, workers))  # meanwhile the next round may begin
    down.unlink()
    await until(lambda: is_closed(connection))
    await until(lambda: len(lines(workers, "end")) > before + len(rounds) + 20)  # on both nodes, all at once


async def is_closed(connection):
    return await state(connection) == "closed"


async def test_where_a_node_dies_with_its_probe_another_probes_after_its_lease(connection, dsn, start, down):
    settings = {"rxjobs_lease_seconds": 3.0, "rxjobs_heartbeat_seconds": 0.5, "rxjobs_poll_seconds": 0.3, "reset": 1.0}
    workers = [start(dsn, script=SCRIPT, down=down, **settings) for _ in range(2)]
    await until(lambda: living(connection, 2))
    # opened by hand, and then as if it had opened by itself just now
    async with rj.App(dsn) as app:
        await app.breakers.open("fragile")
    await fill(connection, "fragile", 50, args={"seconds": 60.0})
    await connection.execute("UPDATE rxjobs.breakers SET is_by_hand = false, version = version + 1, reset_timeout = 1")
    await until(lambda: lines(workers, "start"))
    victim, other = sorted(workers, key=lambda worker: len(worker.lines("start")), reverse=True)
    os.kill(victim.process.pid, signal.SIGKILL)
    assert [len(victim.lines("start")), len(other.lines("start"))] == [1, 0]
    expired = (await connection.fetchval("SELECT min(expires_at) FROM rxjobs.nodes")).timestamp()
    await until(lambda: other.lines("start"))
    (second,) = other.lines("start")
    print(f"another probed {second.at - expired:.2f} s after the lease of the first had ended")
    assert second.at >= expired


async def test_it_is_opened_and_closed_by_hand_on_every_node(connection, dsn, start, down):
    down.unlink()
    workers = [start(dsn, script=SCRIPT, down=down, rxjobs_poll_seconds=0.5, reset=0.2) for _ in range(2)]
    await until(lambda: living(connection, 2))
    async with rj.App(dsn) as app:
        assert await app.breakers.open("fragile") is True
        assert await app.breakers.open("fragile") is False
        await asyncio.sleep(1.0)  # which is what it takes at most: the bound that is promised
        await fill(connection, "fragile", 100, args={})
        await fill(connection, "sturdy", 100, args={})
        await until(lambda: len(lines(workers, "sturdy")) == 100)
        assert lines(workers, "start") == []
        (one,) = await app.breakers.list()
        assert (one.type, one.state, one.is_by_hand, one.wait) == ("fragile", "open", True, None)
        assert await app.breakers.close("fragile") is True
        assert await app.breakers.close("fragile") is False
        await until(lambda: charged_all(connection, 100))
    assert all(len(worker.lines("start")) > 0 for worker in workers)
