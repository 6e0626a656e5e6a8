import asyncio
import threading
from concurrent import futures

import pytest

from rxjobs.calls import UnstorableResult
from rxjobs.errors import InvalidOption, PoolBroken
from rxjobs.executors.in_pool import in_pool
from rxjobs.failure import describe
from rxjobs.stopping import STOP
from rxjobs.testing import conformance_executor as conformance
from rxjobs.testing import conformance_jobs
from rxjobs.testing.conformance_executor import call_of, caught, until
from tests.executors import jobs


@pytest.fixture
def threads():
    with futures.ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def processes():
    with futures.ProcessPoolExecutor(2, mp_context=spawn()) as pool:
        yield pool


def spawn():
    from multiprocessing import get_context

    return get_context("spawn")


async def test_a_pool_of_threads_keeps_the_laws_of_executors(threads):
    await conformance.executor(lambda: in_pool(threads), size=4)


async def test_a_pool_of_processes_keeps_the_laws_of_executors(processes):
    await conformance.executor(lambda: in_pool(processes), size=2)


def test_what_is_no_pool_is_refused():
    with pytest.raises(InvalidOption, match=r"concurrent\.futures\.Executor"):
        in_pool(4)


async def test_what_the_caller_has_in_its_context_holds_in_the_thread(threads):
    jobs.trace.set("mine")
    assert await in_pool(threads).run(call_of(lambda: jobs.trace.get())) == "mine"


async def test_the_trace_goes_along_to_another_process(processes):
    executor = in_pool(processes, carrier=lambda: {"trace": "mine"}, attach=jobs.attach)
    assert await executor.run(call_of(jobs.current_trace)) == "mine"


async def test_a_result_without_a_json_form_is_no_failure(processes):
    assert isinstance(await in_pool(processes).run(call_of(jobs.unstorable)), UnstorableResult)


async def test_a_pool_that_broke_is_told(processes):
    executor = in_pool(processes)
    for _ in range(2):
        error = await caught(executor, call_of(jobs.exit_now, 1))
        assert isinstance(error, PoolBroken)
        assert "only its owner" in str(error)
        assert describe(error).type == "rxjobs.errors.PoolBroken"


async def test_close_leaves_the_pool_to_its_owner(threads):
    executor = in_pool(threads)
    await executor.close()
    assert threads.submit(int).result() == 0


async def test_a_job_that_its_pool_dropped_fails(threads):
    pool, block = futures.ThreadPoolExecutor(1), threading.Event()
    executor = in_pool(pool)
    running = asyncio.create_task(executor.run(call_of(lambda: block.wait(10))))
    waiting = asyncio.create_task(caught(executor, call_of(conformance_jobs.add, 1)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    pool.shutdown(wait=False, cancel_futures=True)
    assert isinstance(await waiting, PoolBroken)
    assert isinstance(await caught(executor, call_of(conformance_jobs.add, 1)), PoolBroken)
    block.set()
    assert await running is True


async def test_a_call_that_is_cancelled_while_it_waits_never_starts():
    with futures.ThreadPoolExecutor(1) as pool:
        executor, block, started = in_pool(pool), threading.Event(), []
        running = asyncio.create_task(executor.run(call_of(lambda: block.wait(10))))
        waiting = asyncio.create_task(caught(executor, call_of(lambda: started.append(1))))
        await asyncio.sleep(0)
        waiting.cancel()
        assert isinstance(await waiting, asyncio.CancelledError)
        block.set()
        await running
    assert started == []


async def test_it_tells_of_its_places_and_of_calls_that_wait():
    with futures.ThreadPoolExecutor(1) as pool:
        executor, block = in_pool(pool), threading.Event()
        running = [asyncio.create_task(executor.run(call_of(lambda: block.wait(10)))) for _ in range(3)]
        await asyncio.sleep(0)
        assert (executor.size, executor.busy, executor.waiting) == (1, 1, 2)
        block.set()
        await asyncio.gather(*running)
    assert (executor.busy, executor.waiting) == (0, 0)


async def test_of_a_pool_that_does_not_tell_its_size_the_calls_that_it_has_are_told():
    class Elsewhere(futures.Executor):
        def __init__(self):
            self.given = []

        def submit(self, function, /, *args, **kwargs):
            self.given.append(futures.Future())
            return self.given[-1]

    pool = Elsewhere()
    executor = in_pool(pool)
    running = asyncio.create_task(caught(executor, call_of(conformance_jobs.add, 1)))
    await asyncio.sleep(0)
    assert (executor.size, executor.busy, executor.waiting) == (None, 1, 0)
    pool.given[0].set_exception(OSError("the cluster is gone"))
    assert isinstance(await running, PoolBroken)
    assert executor.busy == 0


async def test_a_cancelled_job_that_runs_on_is_told(threads, caplog):
    executor, block, begun = in_pool(threads), threading.Event(), threading.Event()

    def stubborn():
        begun.set()
        block.wait(10)

    task = asyncio.create_task(caught(executor, call_of(stubborn)))
    await until(begun.is_set)
    task.cancel()
    assert isinstance(await task, asyncio.CancelledError)
    block.set()
    [record] = caplog.records
    assert "stubborn" in record.getMessage()


class OfUnknownSize(futures.Executor):
    """A pool that does not tell how many calls it takes at once, as Dask's."""

    def __init__(self, pool: futures.Executor) -> None:
        self.submit = pool.submit


@pytest.mark.parametrize("pool", ["threads", "processes", "of unknown size"])
async def test_a_pool_in_which_too_many_jobs_do_not_stop_is_worn_out(tmp_path, monkeypatch, pool):
    monkeypatch.setattr("rxjobs.executors.in_pool.MOST_STUCK", 2)
    of_processes = pool == "processes"
    with futures.ProcessPoolExecutor(2, mp_context=spawn()) if of_processes else futures.ThreadPoolExecutor(2) as owned:
        executor = in_pool(OfUnknownSize(owned) if pool == "of unknown size" else owned)
        release = tmp_path / "release"
        for n in (1, 2):
            assert not executor.is_worn_out
            mark = tmp_path / str(n)
            task = asyncio.create_task(caught(executor, call_of(jobs.wait_for, str(mark), str(release))))
            await until(mark.exists)
            task.cancel()
            assert isinstance(await task, asyncio.CancelledError)
        assert executor.is_worn_out
        assert "stuck=2" in repr(executor)
        release.touch()
        await until(lambda: not executor.is_worn_out)


async def test_a_call_in_threads_that_is_asked_to_stop_is_waited_for_if_it_has_begun():
    running, let_go, began = threading.Event(), threading.Event(), []

    def block():
        running.set()
        let_go.wait(30)
        return 5

    with futures.ThreadPoolExecutor(1) as pool:
        executor = in_pool(pool)
        first = asyncio.create_task(executor.run(call_of(block)))
        await until(running.is_set)
        second = asyncio.create_task(caught(executor, call_of(lambda: began.append(1))))
        await asyncio.sleep(0)
        first.cancel(STOP)
        second.cancel(STOP)
        assert isinstance(await second, asyncio.CancelledError)
        await asyncio.wait({first}, timeout=0.05)
        assert not first.done()
        let_go.set()
        assert await first == 5
    assert began == []
