"""However a job ends, wherever it runs, its row says so and the next job runs."""

import asyncio
import concurrent.futures
import multiprocessing
import sys
import types
from contextlib import asynccontextmanager, suppress

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.testing import fill
from tests.journeys import endings
from tests.waiting import until

EXECUTORS = {
    "default": lambda: None,
    "on_loop": rj.on_loop,
    "in_threads": lambda: rj.in_threads(2),
    "in_processes": lambda: rj.in_processes(1),
    "thread pool": lambda: rj.in_pool(concurrent.futures.ThreadPoolExecutor(2)),
    "process pool": lambda: rj.in_pool(concurrent.futures.ProcessPoolExecutor(1, mp_context=spawning())),
}

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
}

NO_OUTCOME = "TypeError or rxjobs.OutcomeRefused"
"""In another process it is known at once that an outcome is none of ours, here when it is to be written down."""

OUTCOMES = {
    "returns_nothing": ("completed", 1, None),
    "returns_a_value": ("completed", 1, None),
    "returns_what_json_lacks": ("completed", 1, None),
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
    executor = EXECUTORS[kind]()
    async with running(dsn, executor) as app:
        ids = {name: (await app.definitions[name].enqueue()).id for name in (*RAISED, *OUTCOMES)}
        await until(lambda: none_to_run(app), seconds=60)
        for name, id_ in ids.items():
            job = await app.jobs.get(id_)
            if name in RAISED:
                type_, message = RAISED[name]
                assert job.state == "retryable", (name, job)
                (error,) = job.errors
                assert (error["attempt"], error["type"]) == (1, type_), name
                assert error["message"].startswith(message), (name, error["message"])
                assert error["node"] == app.label
                assert error["duration"] >= 0
                assert name in error["traceback"], (name, error["traceback"])
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
    "runs_a_loop_in_the_loop": "asyncio.run() cannot be called from a running event loop",
}


@pytest.mark.parametrize("kind", EXECUTORS)
async def test_code_that_has_not_run_does_not_pass_for_done(dsn, kind):
    """Nor does a job that wants an event loop of its own where it has one; elsewhere it may have it."""
    app, executor, runs_plainly = rj.App(dsn, migrate=True), EXECUTORS[kind](), ["returns_a_coroutine_plainly"]
    if kind != "on_loop":
        runs_plainly.append("runs_a_loop")
    for name in (*UNRUN, *runs_plainly):
        app.job(name=name, executor=executor, breaker=None)(getattr(endings, name))
    async with app.running():
        ids = {name: (await app.definitions[name].enqueue()).id for name in (*UNRUN, *runs_plainly)}
        await until(lambda: none_to_run(app), seconds=60)
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
        await until(lambda: app.jobs.count(state="retryable"), seconds=20)
        quick = (await slow.enqueue(0.0)).id
        await until(lambda: is_completed(app, quick), seconds=20)
        await until(lambda: is_count(app, {"retryable": 2, "completed": 1}), seconds=20)
        for id_ in late:
            (error,) = (await app.jobs.get(id_)).errors
            end = ", and does not stop" if kind == "in_threads" else ""
            assert (error["type"], error["message"]) == ("TimeoutError", f"slow ran longer than its timeout of {seconds:g} s{end}")
            assert seconds <= error["duration"] < 3 * seconds


@pytest.mark.xfail(strict=True, reason="the timeout's clock begins before the executor has a thread for the job")
@pytest.mark.parametrize("kind", ["in_threads", "thread pool"])
async def test_a_timeout_counts_from_where_a_job_begins_to_run(dsn, kind):
    """And not from where it began to wait for a free thread."""
    app = rj.App(dsn, migrate=True)
    executor = rj.in_threads(1) if kind == "in_threads" else rj.in_pool(concurrent.futures.ThreadPoolExecutor(1))
    quick = app.job(name="quick", executor=executor, timeout=1.0)(endings.sleep_in_thread)
    async with app.running():
        await app.enqueue_many([quick.new(0.3) for _ in range(6)])
        await until(lambda: none_to_run(app))
        assert await app.jobs.count() == {"completed": 6}


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
        await until(lambda: app.jobs.count(state="retryable"), seconds=3)
        [job] = await app.jobs.list()
        assert job.errors[0]["message"] == "limited ran longer than its timeout of 0.2 s, and does not stop"
        await unlimited.enqueue()
        await until(lambda: app.jobs.count(state="executing"))
        enqueued = await good.enqueue()
        await until(lambda: is_completed(app, enqueued.id))
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 0.5 + 2
    async with app:
        assert await app.jobs.count() == {"retryable": 1, "executing": 1, "completed": 1}
    let_go.set()
