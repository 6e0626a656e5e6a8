"""Jobs on a real Dask cluster: a scheduler and a worker process on this machine."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rxjobs.errors import PoolBroken
from rxjobs.executors.in_pool import in_pool
from rxjobs.stopping import RUNS_ON, STOP
from rxjobs.testing import conformance_executor as conformance
from rxjobs.testing import conformance_jobs
from rxjobs.testing.conformance_executor import call_of, caught, until
from tests.executors import jobs, whole

distributed = pytest.importorskip("distributed", reason="Dask is not installed (it comes with the dev extra)")

THREADS = 2


@pytest.fixture(scope="module")
def client():
    import dask

    with (
        # a task whose worker died is given up at once: what runs again is the queue's business
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=THREADS,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def executor(client):
    return in_pool(client.get_executor())


async def test_dask_keeps_the_laws_of_executors(client):
    await conformance.executor(lambda: in_pool(client.get_executor()), size=THREADS)


async def test_a_coroutine_that_is_cancelled_ends_on_its_worker(executor, tmp_path):
    ended = tmp_path / "ended"
    task = asyncio.create_task(caught(executor, call_of(jobs.sleep_and_tell_the_end, str(tmp_path / "begun"), str(ended))))
    await until((tmp_path / "begun").exists)
    task.cancel()
    error = await task
    assert isinstance(error, asyncio.CancelledError)
    assert error.args != (RUNS_ON,)  # it is known to have ended
    assert ended.read_text() == "CancelledError"


async def test_a_plain_function_that_is_cancelled_can_see_it(executor, tmp_path):
    ended = tmp_path / "ended"
    task = asyncio.create_task(caught(executor, call_of(jobs.look_whether_cancelled, str(tmp_path / "begun"), str(ended))))
    await until((tmp_path / "begun").exists)
    task.cancel()
    error = await task
    assert isinstance(error, asyncio.CancelledError)
    assert ended.read_text() == "saw it"


async def test_a_plain_function_that_does_not_look_is_told_to_run_on(executor, tmp_path, caplog):
    mark, release = tmp_path / "begun", tmp_path / "release"
    task = asyncio.create_task(caught(executor, call_of(jobs.wait_for, str(mark), str(release))))
    await until(mark.exists)
    task.cancel()
    error = await task
    assert error.args == (RUNS_ON,)
    assert "may still run in its pool" in caplog.text
    assert "stuck=1" in repr(executor)
    release.touch()
    await until(lambda: "stuck=0" in repr(executor))


async def test_a_call_that_waits_for_a_thread_is_withdrawn_and_one_that_runs_is_waited_for(executor, tmp_path):
    release, never = tmp_path / "release", tmp_path / "never"
    running = [
        asyncio.create_task(caught(executor, call_of(jobs.wait_for, str(tmp_path / f"begun{n}"), str(release))))
        for n in range(THREADS)
    ]
    await until(lambda: all((tmp_path / f"begun{n}").exists() for n in range(THREADS)))
    waiting = asyncio.create_task(caught(executor, call_of(jobs.wait_for, str(never), str(release))))
    await asyncio.sleep(0)
    for task in (*running, waiting):
        task.cancel(STOP)
    assert isinstance(await waiting, asyncio.CancelledError)
    assert not any(task.done() for task in running)
    release.touch()
    assert await asyncio.gather(*running) == [None] * THREADS
    assert await executor.run(call_of(conformance_jobs.add, 1)) == 1
    assert not never.exists()


async def test_a_cluster_that_is_gone_is_told(client):
    pool = client.get_executor()
    pool.shutdown()
    error = await caught(in_pool(pool), call_of(conformance_jobs.add, 1))
    assert isinstance(error, PoolBroken)


async def test_a_timeout_counts_from_where_a_job_begins_and_ends_it_there(executor, dsn):
    await whole.timeouts_count_from_where_a_job_begins(dsn, executor)


async def test_a_job_there_has_its_progress_its_span_and_its_traceback(executor, dsn):
    await whole.a_job_knows_all_of_its_attempt_and_tells_of_itself(dsn, executor)


async def test_a_row_that_is_cancelled_has_its_run_end_there(executor, dsn, tmp_path):
    await whole.cancelling_a_row_ends_its_run(dsn, executor, tmp_path / "begun", tmp_path / "ended")


async def test_a_job_that_kills_its_worker_fails_and_is_not_run_again_by_dask(executor, tmp_path):
    """If its scheduler is told so, as docs/scale.md says."""
    log = tmp_path / "log"
    assert isinstance(await caught(executor, call_of(jobs.note, str(log), 7, "exit")), PoolBroken)
    assert log.read_text() == "7\n"
    assert await executor.run(call_of(conformance_jobs.add, 1)) == 1
