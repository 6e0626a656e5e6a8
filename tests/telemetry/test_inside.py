"""Inside a job, wherever it runs: the span around is that of its own attempt, and what it logs says so."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
from opentelemetry import trace
from reactivex import operators as ops
from reactivex.scheduler import NewThreadScheduler

import rxjobs as rj
from rxjobs.telemetry.logs import told_of_job
from tests.telemetry.seen import named, run_until_done

JOBS = 1000
SEEN: dict[int, tuple[str, int, str]] = {}
"""By id of a job, where it was and what it saw: its trace, its span and its thread."""


def look() -> tuple[str, int, str]:
    span = trace.get_current_span().get_span_context()
    return f"{span.trace_id:032x}", span.span_id, threading.current_thread().name


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_each_of_a_thousand_jobs_at_once_is_inside_its_own_attempt(app, spans, kind):
    SEEN.clear()

    if kind == "async":

        @app.job(name="work", queue="many")
        async def work(n):
            await asyncio.sleep(0.001 * (n % 7))
            SEEN[rj.current_job().id] = look()

    else:

        @app.job(name="work", queue="many", executor=rj.in_threads(20))
        def work(n):
            SEEN[rj.current_job().id] = look()

    app.pipeline(app.source("many", max_demand=1000).pipe(rj.execute(concurrency=1000), rj.ack()))
    async with app:
        await app.enqueue_many([work.new(n) for n in range(JOBS)])
        await run_until_done(app, JOBS)
    attempts = {int(span.attributes["messaging.message.id"]): span for span in named(spans, "process many")}
    assert len(attempts) == JOBS
    assert {id_: (seen[0], seen[1]) for id_, seen in SEEN.items()} == {
        id_: (f"{span.context.trace_id:032x}", span.context.span_id) for id_, span in attempts.items()
    }
    if kind == "thread":
        assert threading.current_thread().name not in {name for _, _, name in SEEN.values()}


async def test_the_context_of_a_job_survives_the_schedulers_of_rx_between_its_stages(app, spans, tracer_provider):
    SEEN.clear()

    @app.job(name="work", queue="hops")
    async def work(n):
        SEEN[rj.current_job().id] = look()

    hops = ops.observe_on(rj.in_threads(2)), ops.delay(0.01), ops.observe_on(NewThreadScheduler())
    app.pipeline(app.source("hops", max_demand=20).pipe(*hops, rj.execute(concurrency=5), rj.ack()))
    traces = {}
    async with app:
        for n in range(20):
            with tracer_provider.get_tracer("host").start_as_current_span("request") as request:
                traces[(await work.enqueue(n)).id] = request.get_span_context().trace_id
        await run_until_done(app, 20)
    attempts = {int(span.attributes["messaging.message.id"]): span for span in named(spans, "process hops")}
    assert {id_: span.context.trace_id for id_, span in attempts.items()} == traces
    assert {id_: seen[1] for id_, seen in SEEN.items()} == {id_: span.context.span_id for id_, span in attempts.items()}


def told() -> str:
    return ":".join(map(str, look()[:2]))


async def test_each_of_a_thousand_jobs_in_child_processes_is_inside_its_own_attempt(app, spans):
    executor = rj.in_processes(2)
    definition = app.job(name="work", queue="far", executor=executor, record=True)(told)
    app.pipeline(app.source("far", max_demand=JOBS).pipe(rj.execute(concurrency=JOBS), rj.ack()))
    async with app:
        rows = await app.enqueue_many([definition.new() for _ in range(JOBS)])
        await run_until_done(app, JOBS)
        results = {job.id: job.result for job in await app.jobs.list(queue="far", limit=JOBS)}
    assert results.keys() == {row.id for row in rows}
    attempts = {int(span.attributes["messaging.message.id"]): span for span in named(spans, "process far")}
    assert results == {id_: f"{span.context.trace_id:032x}:{span.context.span_id}" for id_, span in attempts.items()}
    assert {span.attributes["rxjobs.job.executor"] for span in attempts.values()} == {"process"}


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


@pytest.fixture
def kept():
    handler = Kept()
    handler.addFilter(rj.JobLogFilter(baggage_attributes=("tenant.id",)))
    logger = logging.getLogger("shop")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


TRACEPARENT = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "baggage": "tenant.id=7,secret=8"}


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_a_job_logs_names_it_and_its_trace_without_an_sdk(dsn, kept, kind):
    app = rj.App(dsn, migrate=True)

    def say():
        logging.getLogger("shop").warning("hello")

    async def say_here():
        say()

    definition = app.job(name="say", queue="words", meta=TRACEPARENT)(say_here if kind == "async" else say)
    async with app:
        row = await definition.enqueue()
        await run_until_done(app, 1)
    logging.getLogger("shop").warning("outside")
    (record, outside) = kept.records
    assert told_of_job(record) == {
        "job_id": row.id,
        "job_type": "say",
        "queue": "words",
        "attempt": 1,
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "span_id": "b7ad6b7169203331",
    }
    assert getattr(record, "tenant.id") == "7"
    assert not hasattr(record, "secret")
    assert told_of_job(outside) == {}


async def test_with_an_sdk_it_names_the_span_of_the_attempt(app, spans, kept):
    @app.job(name="say")
    async def say():
        logging.getLogger("shop").warning("hello")

    async with app:
        await say.enqueue()
        await run_until_done(app, 1)
    (process,) = named(spans, "process")
    assert told_of_job(kept.records[0])["span_id"] == f"{process.context.span_id:016x}"
