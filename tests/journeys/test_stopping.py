"""What a signal does to a worker process."""

import asyncio
import signal
import time

import pytest

from rxjobs.serving import ONE_WISH
from rxjobs.testing import fill
from tests.waiting import until


async def states(connection):
    rows = await connection.fetch("SELECT state, attempt, count(*) FROM rxjobs.jobs GROUP BY 1, 2")
    return {(row["state"], row["attempt"]): row["count"] for row in rows}


async def completed(connection):
    return sorted(row["id"] for row in await connection.fetch("SELECT id FROM rxjobs.jobs WHERE state = 'completed'"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_in_mid_run_lets_what_runs_end_and_gives_back_the_rest(connection, dsn, start, number):
    await fill(connection, "work", 3_000, args={"seconds": 0.05})
    worker = start(dsn, rxjobs_shutdown_grace=10)
    await until(lambda: len(worker.lines("end")) > 100)
    worker.process.send_signal(number)
    sent = time.time()
    assert await worker.ended(12) == 0, worker.log
    assert worker.lines("start")[-1].at < sent + 1  # what was held and not begun is not begun any more
    assert sorted(worker.ids("end")) == sorted(worker.ids("start")) == await completed(connection)
    done = len(worker.ids("end"))
    assert await states(connection) == {("completed", 1): done, ("available", 0): 3_000 - done}
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.nodes") == 0
    assert "Traceback" not in worker.log


async def test_jobs_that_need_longer_than_the_grace_are_released_without_losing_the_attempt(connection, dsn, start):
    await fill(connection, "work", 5, args={"seconds": 60})
    await fill(connection, "thread", 3, args={"seconds": 60})
    await fill(connection, "work", 5, args={"seconds": 0.5})
    worker = start(dsn, rxjobs_shutdown_grace=1.5)
    await until(lambda: len(worker.lines("start")) == 13)
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.ended(5) == 0, worker.log
    assert sorted(worker.ids("end")) == await completed(connection)
    assert await states(connection) == {("completed", 1): 5, ("available", 0): 8}
    assert len(worker.lines("cancelled")) == 5


async def test_a_second_signal_exits_at_once_and_the_lease_frees_the_jobs(connection, dsn, start):
    await fill(connection, "work", 2, args={"seconds": 60})
    worker = start(dsn, rxjobs_shutdown_grace=60)
    await until(lambda: len(worker.lines("start")) == 2)
    worker.process.send_signal(signal.SIGTERM)
    await until(lambda: "a second signal exits at once" in worker.log)
    worker.process.send_signal(signal.SIGINT)  # at the same moment, as a terminal and a parent send them: one wish
    await asyncio.sleep(ONE_WISH + 0.2)
    assert worker.process.poll() is None
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.ended(1) == 128 + signal.SIGTERM
    assert await states(connection) == {("executing", 1): 2}


async def test_a_signal_while_a_worker_starts_ends_it_too(connection, dsn, start):
    await fill(connection, "work", 200, args={"seconds": 0.01})
    for delay in (0.05, 0.3, 0.5, 0.7, 0.9):
        worker = start(dsn, rxjobs_shutdown_grace=5)
        await asyncio.sleep(delay)  # at one moment of its start or another; whichever it is, it has to end
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.ended(7) in (0, -signal.SIGTERM), worker.log
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs WHERE state = 'executing'") == 0


async def test_an_idle_worker_stops_without_waiting(connection, dsn, start):
    worker = start(dsn, rxjobs_shutdown_grace=20)
    await until(lambda: connection.fetchval("SELECT count(*) FROM rxjobs.nodes"))
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.ended(4) == 0
