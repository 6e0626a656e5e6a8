"""However a job ends, wherever it runs, its row says so and the next job runs."""

import asyncio
import concurrent.futures
import multiprocessing
import sys
import time
import types
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.errors import WornOut
from rxjobs.events import JobStarted, JobStopped
from rxjobs.executors.memory import resident
from rxjobs.testing import fill
from tests.journeys import endings
from tests.numbers import HANG, at_most
from tests.waiting import until

EXECUTORS = {
    "default": lambda: None,
    "on_loop": rj.on_loop,
    "in_threads": lambda: rj.in_threads(2),
    "in_processes": lambda: rj.in_processes(1),
    "thread pool": lambda: rj.in_pool(concurrent.futures.ThreadPoolExecutor(2)),
    "process pool": lambda: rj.in_pool(started(concurrent.futures.ProcessPoolExecutor(1, mp_context=spawning()))),
}


def started(pool):
    """Its process has started: a pool of others does not tell when."""
    pool.submit(abs, 1).result()
    return pool


RAISED = {
    "value_error": ("ValueError", "bad"),
    "two_arguments": ("tests.journeys.endings.TwoArguments", "1 and 2"),
    "silent": ("tests.journeys.endings.Silent", "(its message could not be printed: RuntimeError)"),
    "unpicklable": ("tests.journeys.endings.Unpicklable", "holds a lock"),
    "base_exception": ("tests.journeys.endings.Base", "not an Exception"),
    "system_exit": ("SystemExit", "3"),
    "keyboard_interrupt": ("KeyboardInterrupt", ""),
    "generator_exit": ("GeneratorExit", ""),
    "cancelled": ("asyncio.exceptions.CancelledError", "by itself"),
    "memory_error": ("MemoryError", "all of it"),
    "group": ("ExceptionGroup", "two (2 sub-exceptions)"),
    "nul": ("ValueError", "a\\x00b\\ud800"),
    "recursion": ("RecursionError", "maximum recursion depth exceeded"),
    "unnameable": ("… 490 characters left out …", "without a name"),
    "huge": ("ValueError", "… 49991815 characters left out …"),
    "chain": ("RuntimeError", "the last"),
}
RAISED |= {f"{name}_soon": ending for name, ending in RAISED.items()}

NO_OUTCOME = "TypeError or rxjobs.OutcomeRefused"
"""In another process it is known at once that an outcome is none of ours, here when it is to be written down."""

OUTCOMES = {
    "returns_nothing": ("completed", 1, None),
    "returns_a_value": ("completed", 1, None),
    "returns_what_json_lacks": ("completed", 1, None),
    "returns_a_lambda": ("completed", 1, None),
    "returns_an_open_file": ("completed", 1, None),
    "returns_a_bad_text": ("completed", 1, None),
    "returns_complete": ("completed", 1, None),
    "returns_snooze": ("scheduled", 0, None),
    "raises_snooze": ("scheduled", 0, None),
    "returns_cancel": ("cancelled", 1, "rxjobs.Cancel"),
    "raises_cancel": ("cancelled", 1, "rxjobs.Cancel"),
    "returns_discard": ("discarded", 1, "rxjobs.Discard"),
    "raises_discard": ("discarded", 1, "rxjobs.Discard"),
    "returns_retry": ("retryable", 1, "rxjobs.Retry"),
    "raises_retry": ("retryable", 1, "rxjobs.Retry"),
    "returns_release": ("scheduled", 0, None),
    "returns_own": ("retryable", 1, NO_OUTCOME),
    "raises_bare_outcome": ("retryable", 1, NO_OUTCOME),
}


def spawning():
    return multiprocessing.get_context("spawn")


@pytest.fixture(autouse=True)
def light_children(monkeypatch):
    """A spawned child imports the program's main module anew. That is pytest here, which no job needs."""
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))


@asynccontextmanager
async def running(dsn, executor, **options):
    app = rj.App(dsn, migrate=True)
    for name in (*RAISED, *OUTCOMES, "good"):
        app.job(name=name, executor=executor, breaker=None, **options)(getattr(endings, name))
    pipeline = app.source("default", max_demand=10).pipe(rj.execute(concurrency=4), rj.ack())
    async with app.running(pipeline):
        yield app


@pytest.mark.parametrize("kind", EXECUTORS)
async def test_every_ending_is_told_by_its_row_and_the_pipeline_goes_on(dsn, kind):
    """F23, F25, F28, F29, and rows 54 and 64: on the loop, in threads and in processes, from a function and from a coroutine."""
    executor = EXECUTORS[kind]()
    async with running(dsn, executor) as app:
        ids = {name: (await app.definitions[name].enqueue()).id for name in (*RAISED, *OUTCOMES)}
        await until(lambda: none_to_run(app))
        for name, id_ in ids.items():
            job = await app.jobs.get(id_)
            if name in RAISED:
                type_, message = RAISED[name]
                assert job.state == "retryable", (name, job)
                (error,) = job.errors
                assert error["attempt"] == 1
                assert error["type"].startswith(type_), (name, error["type"])
                assert len(error["traceback"].encode()) < 70_000, name
                assert error["message"].startswith(message), (name, error["message"])
                assert error["node"] == app.label
                assert error["duration"] >= 0
                assert name.removesuffix("_soon") in error["traceback"], (name, error["traceback"])
            else:
                state, attempt, type_ = OUTCOMES[name]
                assert (job.state, job.attempt) == (state, attempt), (name, job.errors)
                assert len(job.errors) == (type_ is not None), name
                assert all(error["type"] in type_.split(" or ") for error in job.errors), (name, job.errors)
        good = await app.definitions["good"].enqueue()
        await until(lambda: is_completed(app, good.id))


UNRUN = {
    "returns_a_generator": "the function returned a generator",
    "returns_an_async_generator": "the function returned a generator",
    "returns_a_coroutine": "the function returned an awaitable",
    "returns_an_awaitable_object": "the function returned an awaitable (Promise)",
    "runs_a_loop_in_the_loop": "asyncio.run() cannot be called from a running event loop",
}


@pytest.mark.parametrize("kind", EXECUTORS)
async def test_code_that_has_not_run_does_not_pass_for_done(dsn, kind):
    """F30, and F31: nor does a job that wants an event loop of its own where it has one; elsewhere it may have it."""
    app, executor = rj.App(dsn, migrate=True), EXECUTORS[kind]()
    runs_plainly = ["returns_a_coroutine_plainly", "returns_an_awaitable_object_plainly"]
    if kind != "on_loop":
        runs_plainly.append("runs_a_loop")
    for name in (*UNRUN, *runs_plainly):
        app.job(name=name, executor=executor, breaker=None)(getattr(endings, name))
    async with app.running():
        ids = {name: (await app.definitions[name].enqueue()).id for name in (*UNRUN, *runs_plainly)}
        await until(lambda: none_to_run(app))
        for name, id_ in ids.items():
            job = await app.jobs.get(id_)
            if name in UNRUN:
                assert job.state == "retryable", name
                assert job.errors[0]["message"].startswith(UNRUN[name]), job.errors
            else:
                assert job.state == "completed", (name, job.errors)


async def none_to_run(app):
    return not await app.jobs.count(state=["available", "executing"])


async def is_completed(app, id_):
    return (await app.jobs.get(id_)).state == "completed"


async def test_the_last_attempt_that_fails_is_a_dead_letter_with_every_error(dsn):
    app = rj.App(dsn, migrate=True)

    @app.job(name="work", max_attempts=3, backoff=lambda attempt, error: 0.0, breaker=None)
    async def work() -> None:
        raise LookupError(f"attempt {rj.current_job().attempt}")

    async with app.running():
        id_ = (await work.enqueue()).id
        await until(lambda: app.jobs.count(state="discarded"))
        job = await app.jobs.get(id_)
        assert [(error["attempt"], error["message"]) for error in job.errors] == [(n, f"attempt {n}") for n in (1, 2, 3)]
        assert job.attempt == job.max_attempts == 3
        assert await app.jobs.retry(id_) == 1
        await until(lambda: is_discarded_with(app, id_, 4))


async def is_discarded_with(app, id_, errors):
    job = await app.jobs.get(id_)
    return job.state == "discarded" and len(job.errors) == errors


async def test_snoozing_again_and_again_never_uses_up_the_attempts(dsn):
    app, runs = rj.App(dsn, migrate=True), []

    @app.job(max_attempts=1)
    async def work() -> object:
        runs.append(rj.current_job().attempt)
        return rj.Snooze(0) if len(runs) < 20 else None

    async with app.running():
        await work.enqueue()
        await until(lambda: app.jobs.count(state="completed"))
    assert runs == [1] * 20


async def test_a_row_whose_arguments_cannot_be_read_is_a_dead_letter_and_the_others_run(dsn):
    app, ran = rj.App(dsn, migrate=True), []

    @app.job(name="work")
    async def work(n: int) -> None:
        ran.append(n)

    async with app:
        connection = await asyncpg.connect(dsn)
        for payload in (
            "null",
            "1",
            "[]",
            '"x"',
            '{"n": "text"}',
            '{"m": 1}',
            "{}",
            '{"n": 1, "more": 2}',
            "[" * 1_000 + "]" * 1_000,
        ):
            await fill(connection, "work", 1, args_sql=f"'{payload}'::json")
        await fill(connection, "work", 20, args_sql="json_build_object('n', n)")
        await connection.close()
        async with app.running():
            await until(lambda: is_count(app, {"completed": 20, "discarded": 9}))
            for job in await app.jobs.list(state="discarded"):
                (error,) = job.errors
                assert error["type"] == "rxjobs.errors.BadPayload"
                assert error["message"]
    assert sorted(ran) == list(range(20))


async def is_count(app, counts):
    return await app.jobs.count() == counts


async def test_a_type_that_nobody_here_knows_is_left_alone(dsn):
    app = rj.App(dsn, migrate=True)

    @app.job(name="known")
    async def known() -> None: ...

    async with app.running():
        connection = await asyncpg.connect(dsn)
        await fill(connection, "unknown", 200)
        await fill(connection, "known", 5)
        await connection.execute("SELECT pg_notify('rxjobs', 'default')")
        await connection.close()
        await until(lambda: is_count(app, {"completed": 5, "available": 200}))
        assert {job.attempt for job in await app.jobs.list(state="available", limit=200)} == {0}


@pytest.mark.parametrize(("kind", "seconds"), [("on_loop", 0.3), ("in_threads", 0.3), ("in_processes", 3.0)])
async def test_a_run_that_takes_too_long_is_cut_off_and_the_next_runs(dsn, kind, seconds):
    app = rj.App(dsn, migrate=True, shutdown_grace=1)
    function = endings.sleep_on_loop if kind == "on_loop" else endings.sleep_in_thread
    executor = rj.in_processes(2) if kind == "in_processes" else EXECUTORS[kind]()
    slow = app.job(name="slow", executor=executor, timeout=seconds)(function)
    async with app.running():
        late = [(await slow.enqueue(3 * seconds)).id for _ in range(2)]
        await until(lambda: app.jobs.count(state="retryable"))
        quick = (await slow.enqueue(0.0)).id
        await until(lambda: is_completed(app, quick))
        await until(lambda: is_count(app, {"retryable": 2, "completed": 1}))
        for id_ in late:
            (error,) = (await app.jobs.get(id_)).errors
            end = ", and does not stop" if kind == "in_threads" else ""
            assert (error["type"], error["message"]) == ("TimeoutError", f"slow ran longer than its timeout of {seconds:g} s{end}")
            assert seconds <= error["duration"] < 3 * seconds


ONE_PLACE = {
    "in_threads": lambda: rj.in_threads(1),
    "in_processes": lambda: rj.in_processes(1),
    "thread pool": lambda: rj.in_pool(concurrent.futures.ThreadPoolExecutor(1)),
    "process pool": lambda: rj.in_pool(started(concurrent.futures.ProcessPoolExecutor(1, mp_context=spawning()))),
}


@pytest.mark.parametrize(
    ("kind", "seconds"), [("in_threads", 2.0), ("in_processes", 2.0), ("thread pool", 2.0), ("process pool", 4.0)]
)
async def test_a_timeout_counts_from_where_a_job_begins_to_run(dsn, kind, seconds):
    """And not from where it began to wait for a free thread, or for a process that starts."""
    app, events = rj.App(dsn, migrate=True), []
    quick = app.job(name="quick", executor=ONE_PLACE[kind](), timeout=seconds)(endings.sleep_in_thread)
    app.events.subscribe(events.append)
    jobs = 9 if seconds == 2.0 else 16  # of 0.3 s, one after the other
    async with app.running():
        await app.enqueue_many([quick.new(0.3) for _ in range(jobs)])
        await until(lambda: none_to_run(app))
        assert await app.jobs.count() == {"completed": jobs}
    started, stopped = ({e.job.id: e for e in events if isinstance(e, kind)} for kind in (JobStarted, JobStopped))
    assert len(started) == len(stopped) == jobs
    # what they waited for their turn is queue time, and each began after the one before had ended
    waited = sorted(event.queue_time / 1e9 for event in stopped.values())
    assert waited[-1] > (jobs - 4) * 0.3
    if kind != "process pool":
        assert all(0.3 <= event.duration / 1e9 < 0.3 * jobs for event in stopped.values())
        begun = sorted(event.monotonic_time for event in started.values())
        assert all(later - before > 0.25e9 for before, later in pairwise(begun))


@pytest.mark.parametrize("kind", ["in_threads", "in_processes"])
async def test_an_error_that_takes_for_ever_to_print_takes_its_own_time_and_nobody_elses(dsn, kind):
    """F23: it is printed where it was raised, and cut off there as the job would have been."""
    app = rj.App(dsn, migrate=True)
    executor = rj.in_threads(2, spare=10) if kind == "in_threads" else rj.in_processes(2)
    for name in ("endless", "endless_soon", "good"):
        app.job(name=name, executor=executor, timeout=1.0, breaker=None)(getattr(endings, name))
    async with app.running():
        ids = [(await app.definitions[name].enqueue()).id for name in ("endless", "endless_soon")]
        await until(lambda: app.jobs.count(state="executing"))
        good = await app.definitions["good"].enqueue()
        await until(lambda: is_completed(app, good.id))
        for id_ in ids:
            await until(lambda id_=id_: is_retryable(app, id_))
            (error,) = (await app.jobs.get(id_)).errors
            assert error["type"] == "TimeoutError"


async def is_retryable(app, id_):
    return (await app.jobs.get(id_)).state == "retryable"


async def test_threads_that_hang_are_replaced_and_then_ask_for_a_fresh_start(dsn):
    """F26, and as dramatiq#211 (row 59): each that is left behind is counted; capacity is never 0 without anybody told of it."""
    app = rj.App(dsn, migrate=True, shutdown_grace=0.1)
    executor = rj.in_threads(2)
    hang = app.job(name="hang", executor=executor, timeout=0.5, breaker=None)(endings.sleep_in_thread)
    async with app.running() as running:
        for hung in (1, 2):
            hanging = await hang.enqueue(20.0)
            await until(lambda hung=hung: executor.abandoned == hung)
            quick = await hang.enqueue(0.0)
            await until(lambda quick=quick: is_completed(app, quick.id))
            await until(lambda hanging=hanging: is_retryable(app, hanging.id))
            (error,) = (await app.jobs.get(hanging.id)).errors
            at_most("told of a timeout", error["duration"] - 0.5, 0.5)
        with pytest.raises(WornOut, match="no thread left"):
            await asyncio.wait_for(running.wait(), 20)


async def test_a_pool_whose_threads_all_hang_asks_for_a_fresh_start(dsn):
    """As dramatiq#211 (row 59): nobody replaces the threads of somebody else's pool."""
    app = rj.App(dsn, migrate=True, shutdown_grace=0.1)
    pool = concurrent.futures.ThreadPoolExecutor(2)
    hang = app.job(name="hang", executor=rj.in_pool(pool), timeout=0.5, breaker=None)(endings.sleep_in_thread)
    async with app.running() as running:
        await app.enqueue_many([hang.new(3.0) for _ in range(3)])
        with pytest.raises(WornOut):
            await asyncio.wait_for(running.wait(), 20)
    pool.shutdown(cancel_futures=True)


async def test_a_process_that_takes_too_much_memory_drains_and_asks_for_a_fresh_start(dsn):
    """F20: a job in it that takes ever more is not one that can be stopped; what it has done counts."""
    app, held = rj.App(dsn, migrate=True, max_memory=resident() + 200 * 1024 * 1024), []

    @app.job(name="hog")
    def hog() -> None:
        for _ in range(20):
            held.append(bytearray(b"x") * (16 * 1024 * 1024))
            time.sleep(0.05)

    async with app.running() as running:
        await hog.enqueue()
        with pytest.raises(WornOut, match="bytes of memory, and max_memory is"):
            await asyncio.wait_for(running.wait(), 30)
    async with app:
        assert await app.jobs.count() == {"completed": 1}


async def test_a_worker_that_takes_too_much_memory_exits_for_a_fresh_start(connection, dsn, start):
    """F20: what it has begun is done, and what it has not is left to others."""
    await fill(connection, "work", 200, args={"seconds": 1.5})
    worker = start(dsn, rxjobs_max_memory=1, rxjobs_shutdown_grace=20)
    assert await worker.ended() == 75, worker.log
    assert "bytes of memory" in worker.log
    rows = await connection.fetch("SELECT state, attempt, count(*) FROM rxjobs.jobs GROUP BY 1, 2")
    counts = {(row["state"], row["attempt"]): row["count"] for row in rows}
    assert counts.keys() <= {("completed", 1), ("available", 0)}
    assert counts.get(("completed", 1), 0) == len(worker.ids("start")) < 200


async def test_a_child_that_dies_costs_its_job_an_attempt_and_the_last_one_makes_a_dead_letter(dsn, tmp_path):
    """F24, and as dramatiq#260 (row 61): the others, that run beside it, are not run again."""
    app, executor = rj.App(dsn, migrate=True), rj.in_processes(4)
    for name in ("exits", "crashes", "kills_itself"):
        app.job(name=name, executor=executor, max_attempts=2, breaker=None, backoff=lambda *_: 0.0)(getattr(endings, name))
    note = app.job(name="note", executor=executor)(endings.note)
    async with app.running():
        notes = [(await note.enqueue(str(tmp_path / f"note-{n}"), 1.0)).id for n in range(6)]
        bad = [(await app.definitions[name].enqueue()).id for name in ("exits", "crashes", "kills_itself")]
        await until(lambda: is_count(app, {"discarded": 3, "completed": 6}))
        for id_ in bad:
            job = await app.jobs.get(id_)
            assert [error["type"] for error in job.errors] == ["rxjobs.errors.ChildDied"] * 2
        for n, id_ in enumerate(notes):
            assert (await app.jobs.get(id_)).attempt == 1
            assert (tmp_path / f"note-{n}").read_text() == "begun\nended\n"


async def test_a_coroutine_that_swallows_its_cancellation_holds_up_neither_the_others_nor_the_stop(dsn):
    app = rj.App(dsn, migrate=True, shutdown_grace=0.5)
    let_go = asyncio.Event()

    async def stubborn() -> None:
        while not let_go.is_set():
            with suppress(asyncio.CancelledError, TimeoutError):
                await asyncio.wait_for(let_go.wait(), 5)

    limited = app.job(name="limited", timeout=0.2)(stubborn)
    unlimited = app.job(name="unlimited")(stubborn)

    @app.job(name="good")
    async def good() -> None: ...

    async with app.running():
        await limited.enqueue()
        await until(lambda: app.jobs.count(state="retryable"))
        [job] = await app.jobs.list()
        assert job.errors[0]["message"] == "limited ran longer than its timeout of 0.2 s, and does not stop"
        await unlimited.enqueue()
        await until(lambda: app.jobs.count(state="executing"))
        enqueued = await good.enqueue()
        await until(lambda: is_completed(app, enqueued.id))
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < HANG  # it would never end
    async with app:
        assert await app.jobs.count() == {"retryable": 1, "executing": 1, "completed": 1}
    let_go.set()
