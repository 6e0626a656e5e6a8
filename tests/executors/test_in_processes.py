import asyncio
import importlib
import inspect
import logging
import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

import rxjobs as rj
from rxjobs.calls import UnstorableResult
from rxjobs.errors import ChildDied, InvalidOption
from rxjobs.executors.in_processes import in_processes
from rxjobs.failure import describe
from rxjobs.middleware.timeout import timeout
from rxjobs.stopping import STOP
from rxjobs.testing import a_job, conformance_jobs, job_type
from rxjobs.testing import conformance_executor as conformance
from rxjobs.testing.conformance_executor import call_of, caught, until
from tests.executors import jobs
from tests.numbers import at_most


@pytest.fixture(autouse=True)
def others(monkeypatch):
    """The children of this process that were there before: other tests keep some for the session."""
    monkeypatch.setitem(globals(), "OTHERS", {process.pid for process in psutil.Process().children()})


@pytest.fixture
async def executor(others):
    executor = in_processes(2)
    yield executor
    await executor.close()
    await until(lambda: children() == [])


def children() -> list[psutil.Process]:
    """What this process has started and not waited for."""
    return [process for process in psutil.Process().children() if process.pid not in OTHERS and not is_tracker(process)]


def is_tracker(process: psutil.Process) -> bool:
    return process.status() != psutil.STATUS_ZOMBIE and any("resource_tracker" in part for part in process.cmdline())


OTHERS: set[int] = set()


def is_gone(pid: int) -> bool:
    """An orphan may stay a zombie where nobody plays init."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def has_exited(pid: int) -> bool:
    """Whether the last of a child's threads is gone, and its pipe closed with it."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return is_gone(pid)
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


async def start(executor, function, *args) -> tuple[asyncio.Task[BaseException | None], Path]:
    """A call that is under way: its function makes the file that is its first argument."""
    task = asyncio.create_task(caught(executor, call_of(function, *map(str, args))))
    await until(Path(args[0]).exists)
    return task, args[0]


async def test_it_keeps_the_laws_of_executors():
    await conformance.executor(lambda: in_processes(2), size=2)


async def test_a_child_is_used_again(executor):
    assert len({await executor.run(call_of(jobs.pid)) for _ in range(5)}) == 1


@pytest.mark.parametrize("n", [0, True, 1.5, None])
def test_a_size_that_is_none_is_refused(n):
    with pytest.raises(InvalidOption, match="in_processes: n is a whole number"):
        in_processes(n)


async def test_each_way_to_die_is_told_and_charges_that_job_alone(executor, tmp_path):
    release = tmp_path / "release"
    other, _ = await start(executor, jobs.wait_for, tmp_path / "mark", release)
    ways = {
        (jobs.exit_now, 1): "exited with code 1",
        (jobs.exit_now, 0): "exited with code 0",
        (jobs.crash,): "was killed by SIGSEGV",
        (jobs.signal_self, int(signal.SIGKILL)): "was killed by SIGKILL",
        (jobs.write_garbage,): "its answer was none",
        (jobs.close_the_pipe,): "before it answered",
    }
    for (function, *args), text in ways.items():
        error = await caught(executor, call_of(function, *args))
        assert isinstance(error, ChildDied), f"{function.__name__}: {error!r}"
        assert text in str(error), f"{function.__name__}: {error}"
        assert describe(error).type == "rxjobs.errors.ChildDied"
    began = time.monotonic()
    assert await executor.run(call_of(conformance_jobs.add, 1)) == 1
    at_most("another child in its place", time.monotonic() - began, 1)
    assert not other.done()
    release.touch()
    assert await other is None


async def test_a_child_that_is_killed_while_it_waits_charges_nobody(executor):
    before = await executor.run(call_of(jobs.pid))
    os.kill(before, signal.SIGKILL)
    await until(lambda: has_exited(before))
    assert await executor.run(call_of(jobs.pid)) != before


async def test_a_cancelled_job_is_killed_at_once_and_the_others_are_not(executor, tmp_path):
    release = tmp_path / "release"
    other, _ = await start(executor, jobs.wait_for, tmp_path / "other", release)
    task, mark = await start(executor, jobs.wait_for, tmp_path / "mark", "/nowhere")
    await until(lambda: mark.read_text() != "")
    pid = int(mark.read_text())
    task.cancel()
    assert isinstance(await task, asyncio.CancelledError)
    await until(lambda: is_gone(pid))
    assert await executor.run(call_of(conformance_jobs.add, 1)) == 1
    release.touch()
    assert await other is None


async def test_a_stopped_child_is_killed_when_its_job_is_cancelled(executor, tmp_path):
    task, _ = await start(executor, jobs.stop_self, tmp_path / "mark")
    task.cancel()
    assert isinstance(await task, asyncio.CancelledError)
    assert await executor.run(call_of(conformance_jobs.add, 1)) == 1


async def test_a_child_that_stopped_reading_blocks_neither_the_loop_nor_a_cancel(executor):
    os.kill(await executor.run(call_of(jobs.pid)), signal.SIGSTOP)
    call = call_of(jobs.length, "x" * 900_000)
    task = asyncio.create_task(caught(executor, call))
    began = time.monotonic()
    await asyncio.wait({task}, timeout=0.05)
    task.cancel()
    assert isinstance(await task, asyncio.CancelledError)
    assert time.monotonic() - began < 30  # it would read nothing for ever
    assert await executor.run(call) == 900_000


async def test_a_call_that_is_cancelled_while_it_waits_never_starts(tmp_path):
    executor = in_processes(1)
    first, _ = await start(executor, jobs.wait_for, tmp_path / "mark", tmp_path / "release")
    second = asyncio.create_task(caught(executor, call_of(conformance_jobs.begin_and_sleep, str(tmp_path / "second"), 0)))
    await asyncio.sleep(0)
    second.cancel()
    assert isinstance(await second, asyncio.CancelledError)
    (tmp_path / "release").touch()
    assert await first is None
    assert await executor.run(call_of(conformance_jobs.add, 1)) == 1
    assert not (tmp_path / "second").exists()
    await executor.close()


async def test_a_call_that_is_cancelled_while_its_child_starts_leaves_it_to_the_next(tmp_path):
    """Or else on a machine so slow that calls are cancelled before a child has started, none would ever begin."""
    executor, mark = in_processes(1), tmp_path / "begun"
    for _ in range(3):
        task = asyncio.create_task(caught(executor, call_of(conformance_jobs.begin_and_sleep, str(mark), 30)))
        await asyncio.sleep(0)  # it is asked for
        await until(lambda: children() != [])
        task.cancel()
        assert isinstance(await task, asyncio.CancelledError)
    (child,) = children()
    assert await executor.run(call_of(jobs.pid)) == child.pid
    assert not mark.exists()
    await executor.close()
    await until(lambda: children() == [])


async def test_many_crashes_in_a_row_leave_it_usable_and_leak_nothing():
    executor, handles = in_processes(4), []
    for _ in range(2):
        errors = await asyncio.gather(*(caught(executor, call_of(jobs.exit_now, 1)) for _ in range(8)))
        assert {type(error) for error in errors} == {ChildDied}
        await until(lambda: children() == [])
        handles.append(psutil.Process().num_fds())
    assert handles[0] == handles[1]
    assert await executor.run(call_of(conformance_jobs.add, 1)) == 1
    await executor.close()
    assert children() == []


async def stopped_after(executor, seconds, function, *args) -> rj.Finished:
    """How a job ends that may run for so many seconds."""
    definition = job_type(function, on=executor, middleware=(timeout(seconds),), name="slow")
    names = inspect.signature(function).parameters
    job = definition.new(*args)
    job = a_job(definition=definition, attempt=1, payload=job.payload, args=dict(zip(names, args, strict=True)))
    return await definition.perform(job, None)


@pytest.mark.parametrize("function", [jobs.stop_self, jobs.stop_in_the_middle_of_an_answer], ids=lambda function: function.__name__)
async def test_a_child_that_is_stopped_is_replaced_when_its_job_has_had_its_time(executor, tmp_path, function):
    """F24, and as celery#4185 (row 57): between two messages or in the middle of one; the job beside it is not run again."""
    release = tmp_path / "release"
    other, _ = await start(executor, jobs.wait_for, tmp_path / "other", release)
    finished = await stopped_after(executor, 0.5, function, str(tmp_path / "mark"))
    assert isinstance(finished.outcome, rj.Retry)
    assert finished.outcome.failure.type == "TimeoutError"
    assert await executor.run(call_of(conformance_jobs.add, 1)) == 1
    assert not other.done()
    release.touch()
    assert await other is None


async def test_a_child_that_stops_reading_is_replaced_when_its_job_has_had_its_time(executor):
    """As celery#4185 (row 57): its pipe is full, and the thread that writes to it hangs with it."""
    await executor.run(call_of(jobs.length, "x"))
    os.kill(await executor.run(call_of(jobs.pid)), signal.SIGSTOP)
    text = "x" * 900_000
    finished = await stopped_after(executor, 0.5, jobs.length, text)
    assert finished.outcome.failure.type == "TimeoutError", finished.outcome
    assert await executor.run(call_of(jobs.length, text)) == 900_000


async def test_a_child_that_does_not_start_is_ended_and_charges_that_job(executor, monkeypatch):
    """As celery#9808 (row 56): whatever it hangs in, it does not keep its place."""
    await executor.run(call_of(jobs.pid))
    with monkeypatch.context() as patched:
        patched.setattr("rxjobs.executors.child.START_SECONDS", 0.5)
        os.kill(await executor.run(call_of(jobs.pid)), signal.SIGSTOP)
        error = await caught(executor, call_of(jobs.length, "x"))
    assert isinstance(error, ChildDied)
    assert "was not ready after 0.5 s" in str(error)
    assert await executor.run(call_of(jobs.length, "x")) == 1


async def test_the_time_that_a_child_takes_to_import_a_job_is_not_the_jobs():
    """Else a job type whose module takes longer than its timeout could never run: each attempt has a new child."""
    executor = in_processes(1)
    finished = await stopped_after(executor, 1.0, importlib.import_module("tests.executors.slow_module").answer)
    assert finished.outcome == rj.Complete(42)
    await executor.close()


async def test_a_hundred_errors_and_results_that_cannot_travel_leave_the_child_as_it_was(executor):
    """F25: they go as text, or are told of."""
    pid = await executor.run(call_of(jobs.pid))
    for _ in range(100):
        for function, kind in ((jobs.raise_unrebuilt, "Unrebuilt"), (jobs.raise_irreducible, "Irreducible")):
            error = await caught(executor, call_of(function))
            assert describe(error).type == f"tests.executors.jobs.{kind}"
        for function in (jobs.give_a_lambda, jobs.give_an_open_file):
            assert isinstance(await executor.run(call_of(function)), UnstorableResult)
        assert "generator" in describe(await caught(executor, call_of(jobs.give_a_generator))).message
    assert await executor.run(call_of(jobs.pid)) == pid


async def test_a_hundred_memory_errors_leave_it_usable(executor):
    """As celery#10462 (row 54)."""
    for _ in range(100):
        assert describe(await caught(executor, call_of(conformance_jobs.fail, "MemoryError"))).type == "MemoryError"
    assert await executor.run(call_of(conformance_jobs.add, 1)) == 1


on_linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux limits the memory of a process")


@pytest.fixture
async def limited():
    executor = in_processes(2, memory=256 * 1024 * 1024)
    yield executor
    await executor.close()


@on_linux
async def test_a_job_that_wants_more_memory_than_there_is_is_charged_alone(limited, tmp_path):
    """F20, and as celery#10462 (row 54): a hundred times in a row. What it had it gives back, so that its child is of use still."""
    release = tmp_path / "release"
    other, _ = await start(limited, jobs.wait_for, tmp_path / "mark", release)
    for step in (16, *[1024] * 99):
        assert describe(await caught(limited, call_of(jobs.hog, 1024, step))).type == "MemoryError"
    assert await limited.run(call_of(jobs.hog, 100)) > 0
    assert not other.done()
    release.touch()
    assert await other is None


@on_linux
async def test_a_child_that_dies_of_its_limit_charges_its_job_alone(limited):
    """F20: a library may abort where Python raises."""
    error = await caught(limited, call_of(jobs.hog_and_die, 1024))
    assert isinstance(error, ChildDied)
    assert "SIGABRT" in str(error)
    assert await limited.run(call_of(jobs.hog, 100)) > 0


@on_linux
async def test_what_jobs_leave_behind_is_not_charged_to_the_next(limited):
    """F20: a child that has lost half of its memory is replaced between two jobs."""
    pids = {await limited.run(call_of(jobs.leak, 48)) for _ in range(20)}
    assert 3 < len(pids) < 20


@pytest.mark.parametrize("memory", [0, -1, True, 1.5, "1G", 1024])
def test_a_limit_that_is_none_is_refused(memory):
    with pytest.raises(InvalidOption, match="in_processes: memory is a number of bytes"):
        in_processes(1, memory=memory)


async def test_children_start_while_threads_are_busy_logging(tmp_path):
    """As celery#9808 and #496 (row 56): a fork would copy the lock of a handler that another thread holds, and hang."""
    handler, done = logging.FileHandler(tmp_path / "log"), threading.Event()
    log = logging.getLogger("tests.busy")
    log.propagate = False
    log.addHandler(handler)

    def write():
        while not done.wait(0.0001):
            log.error("a line of some length, to hold the lock for a while: %s", "x" * 1000)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    executor = in_processes(4)
    try:
        for _ in range(2):
            calls = [executor.run(call_of(jobs.log_and_tell, "a line of a child")) for _ in range(4)]
            assert len(await asyncio.wait_for(asyncio.gather(*calls), 60)) == 4
            await executor.close()
    finally:
        done.set()
        for thread in threads:
            thread.join()
        log.removeHandler(handler)
        handler.close()


async def test_a_tracker_of_resources_that_was_killed_costs_no_job(executor):
    """It is a child of ours too, though no job runs in it; that it is started anew is a warning, and warnings may be errors."""
    assert await executor.run(call_of(jobs.log_and_tell, "first")) is not None
    (tracker,) = [child for child in psutil.Process().children() if is_tracker(child)]
    tracker.kill()
    for _ in range(3):
        with pytest.raises(ChildDied, match="exited with code 7"):
            await executor.run(call_of(jobs.log_and_exit, "so that the next needs a child of its own"))


async def test_a_fork_that_holds_the_pipe_open_does_not_hide_that_the_child_is_gone(executor):
    error = await caught(executor, call_of(jobs.leave_a_process_behind, 8))
    assert isinstance(error, ChildDied)
    assert "exited with code 3" in str(error)


async def test_what_a_job_prints_is_there_when_it_has_ended(executor, capfd):
    await executor.run(call_of(jobs.say, "hello"))
    assert capfd.readouterr().out == "hello\n"


async def test_the_trace_goes_along_where_it_was_made():
    executor = in_processes(1, carrier=lambda: {"trace": jobs.trace.get()}, attach=jobs.attach)
    for name in ("one", "two"):
        jobs.trace.set(name)
        assert await executor.run(call_of(jobs.plain_trace)) == name
        assert await executor.run(call_of(jobs.current_trace)) == name
    await executor.close()


async def test_a_function_that_no_process_can_find_is_refused_here(executor):
    def nested():
        pass

    for function in (lambda: None, nested, jobs.hidden):
        with pytest.raises(InvalidOption, match="top level of a module"):
            await executor.run(call_of(function))
    assert children() == []


async def test_close_kills_what_does_not_end_within_a_second(tmp_path):
    executor = in_processes(2)
    task, _ = await start(executor, jobs.stop_self, tmp_path / "mark")
    os.kill(await executor.run(call_of(jobs.pid)), signal.SIGSTOP)
    began = time.monotonic()
    await executor.close()
    assert time.monotonic() - began < 30  # they would never end
    assert isinstance(await task, ChildDied)
    assert children() == []


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs POSIX")
def test_a_signal_to_the_group_reaches_neither_a_new_child_nor_a_busy_one(program, tmp_path):
    mark, release = tmp_path / "mark", tmp_path / "release"
    process = program(
        f"""
import asyncio, signal
from rxjobs.executors.child import Child
from rxjobs.executors.in_processes import in_processes
from rxjobs.executors.remote import read_answer, write_request
from rxjobs.testing.conformance_executor import call_of
from rxjobs.testing.conformance_jobs import add
from tests.executors.jobs import wait_for

async def main():
    executor = in_processes(1)
    print(await executor.run(call_of(wait_for, {str(mark)!r}, {str(release)!r})) > 0, flush=True)
    await executor.close()

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    child = Child()
    print("new", flush=True)
    child.give_turns(Child.GO)
    child.send([write_request(call_of(add, 1, 2), {{}}, None)])
    print(read_answer(child.hear()).value, flush=True)
    child.end()
    asyncio.run(main())
"""
    )
    assert process.stdout.readline() == "new\n", process.stderr.read()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.killpg(process.pid, number)
    assert process.stdout.readline() == "3\n", process.stderr.read()
    deadline = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.killpg(process.pid, number)
    release.touch()
    assert process.stdout.readline() == "True\n", process.stderr.read()
    assert process.wait(60) == 0
    assert process.stderr.read() == ""


def test_children_of_a_parent_that_was_killed_end_busy_or_not(program, tmp_path):
    process = program(
        f"""
import asyncio
from rxjobs.executors.in_processes import in_processes
from rxjobs.testing.conformance_executor import call_of, until
from tests.executors.jobs import pid, wait_for
from pathlib import Path

async def main():
    executor, mark = in_processes(2), Path({str(tmp_path / "mark")!r})
    busy = asyncio.create_task(executor.run(call_of(wait_for, str(mark), "/nowhere")))
    await until(lambda: mark.exists() and mark.read_text())
    print(mark.read_text(), await executor.run(call_of(pid)), flush=True)
    await busy

if __name__ == "__main__":
    asyncio.run(main())
"""
    )
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(set(pids)) == 2, process.stderr.read()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 60
    while not all(map(is_gone, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert all(map(is_gone, pids))


def test_a_program_that_never_closed_it_exits_without_a_word(program):
    process = program(
        """
import asyncio
from rxjobs.executors.in_processes import in_processes
from rxjobs.testing.conformance_executor import call_of

executor = in_processes(1)

def answer() -> int:
    return 42

async def main():
    print(await executor.run(call_of(answer)), flush=True)

if __name__ == "__main__":
    asyncio.run(main())
"""
    )
    assert process.stdout.readline() == "42\n", process.stderr.read()
    assert process.wait(60) == 0
    assert process.stderr.read() == ""


async def test_a_call_that_is_asked_to_stop_is_killed(tmp_path):
    executor, mark = in_processes(1), tmp_path / "begun"
    task = asyncio.create_task(caught(executor, call_of(conformance_jobs.begin_and_sleep, str(mark), 30)))
    await until(mark.exists)
    began = time.monotonic()
    task.cancel(STOP)
    assert isinstance(await task, asyncio.CancelledError)
    assert time.monotonic() - began < 20  # it sleeps for thirty seconds
    await executor.close()
