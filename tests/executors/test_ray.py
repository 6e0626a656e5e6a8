"""Jobs on a real Ray, started on this machine. `make ray` installs it, which takes 300 MB, and runs these.

What docs/scale.md shows of Dask and Ray is what this file and test_dask.py do.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import shutil
import tempfile

import psutil
import pytest

from rxjobs.errors import InvalidOption, PoolBroken
from rxjobs.executors.in_pool import in_pool
from rxjobs.executors.ray import RayExecutor
from rxjobs.stopping import RUNS_ON, STOP
from rxjobs.testing import conformance_executor as conformance
from rxjobs.testing import conformance_jobs
from rxjobs.testing.conformance_executor import call_of, caught, until
from tests.executors import jobs, whole

CPUS = 2

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (300 MB): make ray does it"),
    # of Ray's own: subprocesses and sockets that it leaves to the garbage collector
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(scope="module")
def cluster():
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    folder = tempfile.mkdtemp(prefix="rxjobs-ray-")  # a socket's path is short
    ray.init(
        num_cpus=CPUS,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=folder,
        object_store_memory=80 * 1024 * 1024,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    yield ray
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def executor(cluster):
    with RayExecutor() as pool:
        yield in_pool(pool)


async def test_ray_keeps_the_laws_of_executors(cluster):
    with RayExecutor() as pool:
        await conformance.executor(lambda: in_pool(pool), size=CPUS)


async def test_a_coroutine_that_is_cancelled_ends_on_its_worker(executor, tmp_path):
    ended = tmp_path / "ended"
    task = asyncio.create_task(caught(executor, call_of(jobs.sleep_and_tell_the_end, str(tmp_path / "begun"), str(ended))))
    await until((tmp_path / "begun").exists)
    task.cancel()
    error = await task
    assert isinstance(error, asyncio.CancelledError)
    assert error.args != (RUNS_ON,)
    assert ended.read_text() == "CancelledError"


async def test_a_plain_function_that_is_cancelled_can_see_it(executor, tmp_path):
    ended = tmp_path / "ended"
    task = asyncio.create_task(caught(executor, call_of(jobs.look_whether_cancelled, str(tmp_path / "begun"), str(ended))))
    await until((tmp_path / "begun").exists)
    task.cancel()
    error = await task
    assert isinstance(error, asyncio.CancelledError)
    assert error.args != (RUNS_ON,)
    assert ended.read_text() == "saw it"


async def test_a_function_that_does_not_look_is_killed(executor, tmp_path):
    mark = tmp_path / "begun"
    task = asyncio.create_task(caught(executor, call_of(jobs.pause_and_tell, str(mark), 600)))
    await until(lambda: mark.exists() and mark.read_text() != "")
    pid = int(mark.read_text())
    task.cancel()
    assert isinstance(await task, asyncio.CancelledError)
    await until(lambda: not psutil.pid_exists(pid), seconds=30)
    await until(lambda: "stuck=0" in repr(executor))
    assert await executor.run(call_of(conformance_jobs.add, 1)) == 1


async def test_one_that_is_not_to_be_killed_is_told_to_run_on(cluster, tmp_path, caplog):
    with RayExecutor(kill_after=None) as pool:
        executor, mark = in_pool(pool), tmp_path / "begun"
        task = asyncio.create_task(caught(executor, call_of(jobs.pause_and_tell, str(mark), 3)))
        await until(mark.exists)
        task.cancel()
        assert (await task).args == (RUNS_ON,)
        assert "may still run in its pool" in caplog.text
        await until(lambda: "stuck=0" in repr(executor))


async def test_a_call_that_waits_for_a_cpu_is_withdrawn_and_one_that_runs_is_waited_for(executor, tmp_path):
    never = tmp_path / "never"
    running = [
        asyncio.create_task(
            caught(executor, call_of(jobs.sleep_and_tell_the_end, str(tmp_path / f"begun{n}"), str(tmp_path / f"end{n}")))
        )
        for n in range(CPUS)
    ]
    await until(seconds=60, condition=lambda: all((tmp_path / f"begun{n}").exists() for n in range(CPUS)))
    waiting = asyncio.create_task(caught(executor, call_of(jobs.wait_for, str(never), str(tmp_path))))
    await asyncio.sleep(0)
    for task in (waiting, *running):
        task.cancel(STOP)
    assert isinstance(await waiting, asyncio.CancelledError)
    await asyncio.gather(*running)
    assert all((tmp_path / f"end{n}").read_text() == "CancelledError" for n in range(CPUS))
    assert await executor.run(call_of(conformance_jobs.add, 1)) == 1
    assert not never.exists()


async def test_a_job_that_kills_its_worker_fails_and_is_not_run_again_by_ray(executor, tmp_path):
    log = tmp_path / "log"
    assert isinstance(await caught(executor, call_of(jobs.note, str(log), 7, "exit")), PoolBroken)
    assert log.read_text() == "7\n"
    assert await executor.run(call_of(conformance_jobs.add, 1)) == 1


async def test_a_timeout_counts_from_where_a_job_begins_and_ends_it_there(executor, dsn):
    await whole.timeouts_count_from_where_a_job_begins(dsn, executor)


async def test_a_job_there_has_its_progress_its_span_and_its_traceback(executor, dsn):
    await whole.a_job_knows_all_of_its_attempt_and_tells_of_itself(dsn, executor)


async def test_a_row_that_is_cancelled_has_its_run_end_there(executor, dsn, tmp_path):
    await whole.cancelling_a_row_ends_its_run(dsn, executor, tmp_path / "begun", tmp_path / "ended")


def test_an_option_that_cannot_be_is_refused(cluster):
    with pytest.raises(InvalidOption, match="max_attempts"):
        RayExecutor(max_retries=3)
    with pytest.raises(InvalidOption, match="kill_after"):
        RayExecutor(kill_after=-1)
