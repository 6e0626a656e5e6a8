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
    await until(lambda: "stopping; jobs in flight may end" in worker.log)
    begun = len(worker.lines("start"))
    assert await worker.ended() == 0, worker.log
    assert len(worker.lines("start")) < begun + 50  # what was held and not begun is not begun any more
    assert sorted(worker.ids("end")) == sorted(worker.ids("start")) == await completed(connection)
    done = len(worker.ids("end"))
    assert await states(connection) == {("completed", 1): done, ("available", 0): 3_000 - done}
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.nodes") == 0
    assert "Traceback" not in worker.log


async def test_jobs_that_need_longer_than_the_grace_are_released_without_losing_the_attempt(connection, dsn, start):
    await fill(connection, "work", 5, args={"seconds": 60})
    await fill(connection, "work", 5, args={"seconds": 0.5})
    worker = start(dsn, rxjobs_shutdown_grace=1.5)
    await until(lambda: len(worker.lines("start")) == 10)
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.ended() == 0, worker.log
    assert sorted(worker.ids("end")) == await completed(connection)
    assert await states(connection) == {("completed", 1): 5, ("available", 0): 5}
    assert len(worker.lines("cancelled")) == 5
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.nodes") == 0


@pytest.mark.parametrize("kind", ["thread", "stubborn"])
async def test_a_job_that_does_not_stop_ends_with_its_process_and_loses_no_attempt(connection, dsn, start, kind):
    """It is released for longer than its process needs to end, so that nobody runs it while it still runs here."""
    grace = 1.0
    await fill(connection, kind, 2, args={"seconds": 60})
    await fill(connection, "work", 2, args={"seconds": 60})
    worker = start(dsn, rxjobs_shutdown_grace=grace)
    await until(lambda: len(worker.lines("start")) == 4)
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.ended() == 0, worker.log
    assert "do not stop: they end with this process" in worker.log
    assert await states(connection) == {("scheduled", 0): 2, ("available", 0): 2}
    assert await connection.fetchval("SELECT min(scheduled_at) > now() FROM rxjobs.live_jobs WHERE state = 'scheduled'")
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.nodes") == 0
    stuck = [line.id for line in worker.lines("start") if line.id <= 2]
    ended = time.time()
    other = start(dsn, rxjobs_shutdown_grace=0)
    await until(lambda: set(stuck) <= set(other.ids("start")))
    assert min(line.at for line in other.lines("start") if line.id in stuck) > ended


async def test_a_thread_that_a_coroutine_left_behind_does_not_hold_up_the_end_either(connection, dsn, start):
    await fill(connection, "helped", 1, args={"seconds": 60})
    worker = start(dsn, rxjobs_shutdown_grace=0.5)
    await until(lambda: worker.lines("start"))
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.ended() == 0, worker.log
    assert await states(connection) == {("available", 0): 1}


async def test_what_is_to_be_done_at_exit_is_done_although_a_job_does_not_stop(connection, dsn, start):
    await fill(connection, "thread", 1, args={"seconds": 60})
    worker = start(dsn, rxjobs_shutdown_grace=0)
    await until(lambda: worker.lines("start"))
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.ended() == 0, worker.log
    assert worker.log.endswith("at exit\n")


@pytest.mark.parametrize("kind", ["thread_in_time", "stubborn_in_time"])
async def test_a_process_that_is_worn_out_drains_and_asks_for_a_fresh_start(connection, dsn, start, kind):
    count = 4 if kind == "thread_in_time" else 64
    await fill(connection, kind, count, args={"seconds": 60})
    await fill(connection, "work", 1, args={"seconds": 6})
    worker = start(dsn, rxjobs_shutdown_grace=10, max_demand=100)
    assert await worker.ended() == 75, worker.log
    assert "stopped, for a fresh start" in worker.log
    assert await states(connection) == {("retryable", 1): count, ("completed", 1): 1}
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.nodes") == 0


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
    assert await worker.ended() == 128 + signal.SIGTERM
    assert await states(connection) == {("executing", 1): 2}


async def test_a_signal_while_a_worker_starts_ends_it_too(connection, dsn, start):
    await fill(connection, "work", 200, args={"seconds": 0.01})
    for delay in (0.05, 0.3, 0.5, 0.7, 0.9):
        worker = start(dsn, rxjobs_shutdown_grace=5, may_fork=False)
        await asyncio.sleep(delay)  # at one moment of its start or another; whichever it is, it has to end
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.ended() in (0, -signal.SIGTERM), worker.log
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs WHERE state = 'executing'") == 0


async def test_an_idle_worker_stops_without_waiting(connection, dsn, start):
    worker = start(dsn, rxjobs_shutdown_grace=60)
    await until(lambda: connection.fetchval("SELECT count(*) FROM rxjobs.nodes"))
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.ended() == 0
