"""Spans and log events of what is over when it is heard of."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.trace import SpanKind, StatusCode

import rxjobs as rj
from rxjobs.events import JobsAcked, JobsRescued, LeaderLost, LeaderWon, MaintenanceEnded, QueueFetched, StageWorked
from rxjobs.failure import Failure
from rxjobs.telemetry import names
from rxjobs.telemetry.failing import STORM, Failing, Logs
from rxjobs.telemetry.providers import Telemetry
from rxjobs.telemetry.telling import Telling
from rxjobs.telemetry.tracing import Tracing
from rxjobs.testing.jobs import a_job
from tests.telemetry.seen import named, run_until_done

SAMPLED = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
UNSAMPLED = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}
FAILURE = Failure("OSError", "away", "Traceback")


@pytest.fixture
def exporter():
    return InMemoryLogRecordExporter()


@pytest.fixture
def logger_provider(exporter):
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    return provider


def telling(tracer_provider, logger_provider=None, **options):
    telemetry = Telemetry(tracer_provider=tracer_provider, logger_provider=logger_provider, **options)
    return Telling(telemetry, Tracing(telemetry))


def stage_worked(meta, **fields):
    told = {"duration": 6_000_000, "disposition": "out", "reason": "", "is_sample": False, "is_traced": False, **fields}
    return StageWorked(job=a_job(type="send", meta=meta), stage="enrich", **told)


def fetched(**fields):
    told = {"requested": 5, "jobs": [a_job(meta=SAMPLED), a_job()], "trigger": "notify", "duration": 1_000_000, **fields}
    return QueueFetched(queue="mail", **told)


def test_fetches_and_acks_are_spans_where_that_is_asked_for(tracer_provider, spans):
    hear = telling(tracer_provider, spans={"fetch": True, "ack": True}).hear
    hear(fetched())
    hear(fetched(jobs=[]))
    hear(JobsAcked(queue="mail", jobs=[a_job(meta=SAMPLED)], duration=1_000_000, error=FAILURE))
    fetch, ack = spans.get_finished_spans()
    assert (fetch.name, fetch.kind, fetch.parent) == ("fetch mail", SpanKind.CLIENT, None)
    told = dict(fetch.attributes)
    assert told | {"messaging.batch.message_count": 2, "rxjobs.demand.requested": 5, "rxjobs.fetch.trigger": "notify"} == told
    assert [link.context.span_id for link in fetch.links] == [0xB7AD6B7169203331]
    assert fetch.end_time - fetch.start_time == 1_000_000
    assert (ack.name, ack.status.status_code, ack.attributes["error.type"]) == ("ack mail", StatusCode.ERROR, "OSError")
    assert ack.events[0].attributes["exception.message"] == "away"


async def test_the_span_of_an_ack_links_to_the_attempts_that_it_writes_down(dsn, tracer_provider, spans):
    app = rj.App(dsn, telemetry=Telemetry(tracer_provider=tracer_provider, spans={"ack": True}), migrate=True, poll_seconds=0.1)

    @app.job(name="send", queue="mail", max_attempts=1)
    async def send(n):
        if n == 1:
            raise LookupError("gone")

    async with app:
        await app.enqueue_many([send.new(n) for n in range(3)])
        await run_until_done(app, 3)
    attempts, acks = named(spans, "process mail"), named(spans, "ack mail")
    links = [link for ack in acks for link in ack.links]
    assert {link.context.span_id for link in links} == {attempt.context.span_id for attempt in attempts}
    assert {link.attributes["rxjobs.link.kind"] for link in links} == {"attempt"}
    assert len(links) == len(attempts) == 3
    counted = Counter()
    for ack in acks:
        counted.update({name: count for name, count in ack.attributes.items() if name.startswith("rxjobs.ack.")})
    assert counted == {"rxjobs.ack.success": 2, "rxjobs.ack.discard": 1}


def test_they_are_not_where_it_is_not(tracer_provider, spans):
    hear = telling(tracer_provider).hear
    hear(fetched())
    hear(JobsAcked(queue="mail", jobs=[a_job(meta=SAMPLED)], duration=1))
    assert spans.get_finished_spans() == ()


@pytest.mark.parametrize(
    ("option", "fields", "is_told"),
    [
        ("slow", {}, True),
        ("slow", {"duration": 4_000_000}, False),
        ("slow", {"duration": 1, "is_traced": True}, True),
        ("traced", {}, False),
        ("traced", {"is_traced": True}, True),
        (False, {"is_traced": True}, False),
    ],
)
def test_a_stage_is_a_span_where_it_is_slow_or_traced(tracer_provider, spans, option, fields, is_told):
    telling(tracer_provider, spans={"stage": option}).hear(stage_worked(SAMPLED, **fields))
    assert len(spans.get_finished_spans()) == is_told


def test_the_span_of_a_stage_is_in_the_trace_of_its_job_and_says_what_became_of_it(tracer_provider, spans):
    hear = telling(tracer_provider).hear
    hear(stage_worked(SAMPLED, disposition="dropped", reason="Cancel"))
    hear(stage_worked(UNSAMPLED))
    hear(stage_worked({}))
    (span,) = spans.get_finished_spans()
    assert (span.name, span.parent.span_id) == ("enrich send", 0xB7AD6B7169203331)
    assert (span.attributes["rxjobs.stage.disposition"], span.attributes["rxjobs.stage.drop_reason"]) == ("dropped", "Cancel")


def test_a_call_of_a_stage_for_many_jobs_is_one_span_that_links_to_their_enqueues(tracer_provider, spans):
    others = [a_job(type="post", meta=SAMPLED), a_job(type="post", meta=UNSAMPLED), a_job(type="post")]
    telling(tracer_provider).hear(stage_worked(SAMPLED, others=others))
    telling(tracer_provider).hear(stage_worked(UNSAMPLED, others=others[1:]))
    (span,) = spans.get_finished_spans()
    assert (span.name, span.parent, len(span.links)) == ("enrich", None, 2)
    assert (span.attributes["messaging.batch.message_count"], span.attributes["rxjobs.job.kinds"]) == (4, ("post", "send"))


@pytest.mark.parametrize(("count", "error", "is_told"), [(0, None, False), (3, None, True), (0, FAILURE, True)])
def test_a_round_beside_the_queues_is_a_span_where_it_did_something_or_failed(tracer_provider, spans, count, error, is_told):
    telling(tracer_provider).hear(MaintenanceEnded(task="prune", count=count, duration=5, error=error))
    assert [span.name for span in spans.get_finished_spans()] == ["prune"] * is_told


async def test_stages_of_a_pipeline_tell_of_themselves(app, spans):
    @app.job(name="send", queue="mail")
    async def send(n): ...

    async def look_up(job):
        await asyncio.sleep(0.006)
        return {"n": 1}

    app.pipeline(
        app.source("mail").pipe(
            rj.filter(lambda job: job.args["n"] < 2, name="few", traced=True), rj.enrich(look_up), rj.execute(), rj.ack()
        )
    )
    async with app:
        await app.enqueue_many([send.new(n) for n in range(3)])
        await run_until_done(app, 3)
    few, enrich = named(spans, "few send"), named(spans, "enrich send")
    assert sorted(span.attributes["rxjobs.stage.disposition"] for span in few) == ["dropped", "out", "out"]
    assert len(enrich) == 2
    created = {span.context.span_id for span in named(spans, "create")}
    assert {span.parent.span_id for span in (*few, *enrich)} <= created


def test_what_happens_to_nodes_and_their_jobs_is_told_as_named_log_events(tracer_provider, logger_provider, exporter):
    hear = telling(tracer_provider, logger_provider).hear
    hear(JobsRescued(node="n", ids=[7], queues={"mail": 1}))
    hear(JobsRescued(node="n", ids=[8], queues={"mail": 1}, reason="worker_gone"))
    hear(LeaderWon(node="n", term=3))
    hear(LeaderLost(node="n", term=3))
    told = [(one.log_record.event_name, dict(one.log_record.attributes)) for one in exporter.get_finished_logs()]
    assert told == [
        ("rxjobs.job.rescued", {"rxjobs.job.id": "7", "rxjobs.worker.id": "n", "rxjobs.rescue.reason": "heartbeat_lost"}),
        ("rxjobs.job.rescued", {"rxjobs.job.id": "8", "rxjobs.worker.id": "n", "rxjobs.rescue.reason": "worker_gone"}),
        ("rxjobs.leader.changed", {"rxjobs.worker.id": "n", "rxjobs.leader.event": "acquired", "rxjobs.leader.term": 3}),
        ("rxjobs.leader.changed", {"rxjobs.worker.id": "n", "rxjobs.leader.event": "lost", "rxjobs.leader.term": 3}),
    ]
    severities = {one.log_record.severity_text for one in exporter.get_finished_logs()}
    assert severities == {"WARN", "INFO"}


def test_what_fails_while_it_tells_harms_nobody(tracer_provider, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("rxjobs.telemetry.telling"), "filters", [])  # it tells of one a minute
    told = telling(tracer_provider)
    told.hear(MaintenanceEnded(task="prune", count=1, duration="no number"))
    assert "maintenance.stop could not be told" in caplog.text


@pytest.mark.parametrize(
    ("opted", "on_span", "in_log"),
    [("", True, False), ("logs", False, True), ("logs/dup", True, True), ("x, logs/dup", True, True)],
)
def test_an_exception_is_told_where_the_conventions_variable_says(
    tracer_provider, spans, logger_provider, exporter, opted, on_span, in_log
):
    telemetry = Telemetry(tracer_provider=tracer_provider, logger_provider=logger_provider)
    failing = Failing(telemetry, {"OTEL_SEMCONV_EXCEPTION_SIGNAL_OPT_IN": opted})
    span = telemetry.tracer.start_span("process")
    failing.tell(span, a_job(type="send"), FAILURE, None)
    span.end()
    (ended,) = spans.get_finished_spans()
    assert (ended.status.status_code, ended.attributes["error.type"]) == (StatusCode.ERROR, "OSError")
    assert [event.name for event in ended.events] == ["exception"] * on_span
    assert [one.log_record.event_name for one in exporter.get_finished_logs()] == ["messaging.process.exception"] * in_log


def test_in_a_storm_of_failures_tracebacks_are_left_out(tracer_provider, spans, monkeypatch):
    monkeypatch.setattr("rxjobs.telemetry.failing.time.monotonic", lambda: 7.0)
    telemetry = Telemetry(tracer_provider=tracer_provider)
    failing = Failing(telemetry, {})
    for _ in range(STORM + 10):
        span = telemetry.tracer.start_span("process")
        failing.tell(span, a_job(type="send"), FAILURE, None)
        span.end()
    whole = ["exception.stacktrace" in span.events[0].attributes for span in spans.get_finished_spans()]
    assert whole == [True] * STORM + [False] * 10


def test_nobody_is_told_where_nobody_takes_logs():
    assert not Logs(Telemetry()).are_on


async def test_a_job_that_runs_out_of_time_says_so_on_its_span(app, spans):
    @app.job(name="long", timeout=0.05, max_attempts=1)
    async def long():
        await asyncio.sleep(30)

    async with app:
        await long.enqueue()
        await run_until_done(app, 1)
    (process,) = named(spans, "process")
    assert [event.name for event in process.events] == ["exception", names.SPAN_TIMEOUT]
