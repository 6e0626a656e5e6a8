"""A whole app whose jobs run in somebody else's cluster: what is the same for Dask and Ray."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rxjobs as rj
from rxjobs.calls import Executor
from tests.executors import jobs
from tests.waiting import until


def say_where(reached: str) -> dict[str, object]:
    """Fails the first time, then tells where it runs, and within which span."""
    job = rj.current_job()
    if job.attempt == 1:
        raise jobs.Unrebuilt(1, 2)
    job.progress(0.5, reached)
    with TracerProvider().get_tracer("job").start_as_current_span("step") as span:
        parent = span.parent
        return {"pid": os.getpid(), "trace": span.context.trace_id, "parent": parent.span_id, "seconds": left(job)}


def left(job: rj.Job) -> float:
    return (job.deadline - datetime.now(UTC)).total_seconds()


async def a_job_knows_all_of_its_attempt_and_tells_of_itself(dsn: str, executor: Executor) -> None:
    """Its progress arrives, its spans are children of the right attempt, and what it raised is kept with the traceback of there."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = rj.App(dsn, telemetry=rj.Telemetry(tracer_provider=provider), migrate=True, poll_seconds=0.1)
    say = app.job(name="say", record=True, timeout=60, executor=executor, backoff=lambda attempt, error: 0.01)(say_where)
    async with app.running():
        enqueued = await say.enqueue("half")
        said = await enqueued.result(timeout=60)
        await until(lambda: halfway(app, enqueued.id))
        job = await app.jobs.get(enqueued.id)
    assert said["pid"] != os.getpid()
    first, second = [span for span in exporter.get_finished_spans() if span.name == "process default"]
    assert (said["trace"], said["parent"]) == (second.context.trace_id, second.context.span_id) != (0, first.context.span_id)
    assert 50 < said["seconds"] <= 60
    [error] = job.errors
    assert error["type"] == "tests.executors.jobs.Unrebuilt"
    assert "raise jobs.Unrebuilt(1, 2)" in error["traceback"]


async def halfway(app: rj.App, id: int) -> bool:
    job = await app.jobs.get(id)
    return job is not None and tuple(job.progress or ()) == (0.5, "half")


async def timeouts_count_from_where_a_job_begins(dsn: str, executor: Executor) -> None:
    """Of many jobs that wait for a place, none is late because it waited; the one that takes too long is ended there."""
    app = rj.App(dsn, migrate=True, poll_seconds=0.1)
    short = app.job(timeout=4, max_attempts=1, executor=executor, name="short")(jobs.pause)
    slow = app.job(timeout=2, max_attempts=1, executor=executor, name="slow")(jobs.pause_softly)
    async with app.running():
        shorts = await app.enqueue_many([short.new(0.7) for _ in range(12)])
        late = await slow.enqueue(600)
        await until(lambda: have_ended(app, 13))
        [error] = (await app.jobs.get(late.id)).errors
        assert error["type"] == "TimeoutError"
        assert "does not stop" not in error["message"]
        assert [(await app.jobs.get(one.id)).state for one in shorts] == ["completed"] * 12


async def have_ended(app: rj.App, count: int) -> bool:
    states = await app.jobs.count()
    return states.get("completed", 0) + states.get("discarded", 0) == count


async def cancelling_a_row_ends_its_run(dsn: str, executor: Executor, mark, end) -> None:
    """`app.jobs.cancel` reaches a coroutine that runs there."""
    app = rj.App(dsn, migrate=True, poll_seconds=0.1)
    sleep = app.job(executor=executor, name="sleep")(jobs.sleep_and_tell_the_end)
    async with app.running():
        enqueued = await sleep.enqueue(str(mark), str(end))
        await until(mark.exists)
        await app.jobs.cancel(enqueued.id)
        await until(lambda: is_cancelled(app, enqueued.id))
    assert end.read_text() == "CancelledError"


async def is_cancelled(app: rj.App, id: int) -> bool:
    return (await app.jobs.get(id)).state == "cancelled"
