"""Metrics from what is heard on the event stream."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import weakref

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

import rxjobs as rj
from rxjobs.event_stream import EventStream
from rxjobs.events import JobFailed, JobStale, JobStarted, JobStopped, QueueStalled
from rxjobs.failure import Failure
from rxjobs.outcome import COMPLETE
from rxjobs.telemetry import names
from rxjobs.telemetry.metrics import Metrics
from rxjobs.telemetry.providers import Telemetry
from rxjobs.telemetry.tracing import Tracing
from rxjobs.testing.jobs import a_job, job_type
from tests.telemetry.seen import by, points, run_until_done, until, until_done

PROCESS = {"messaging__system": "rxjobs", "messaging__operation__name": "process"}


def of(kind, queue="default", **more):
    return by(messaging__destination__name=queue, rxjobs__job__kind=kind, **more)


@pytest.fixture
def metrics(telemetry):
    return Metrics({"work"}, telemetry)


def started(kind="work", queue_time=0, **fields):
    return JobStarted(job=a_job(type=kind, **fields), queue_time=queue_time)


def stopped(kind="work", duration=0, outcome=COMPLETE, **fields):
    return JobStopped(job=a_job(type=kind, **fields), duration=duration, queue_time=0, outcome=outcome)


def failed(error="E", kind="work", duration=0, **fields):
    failure = Failure(error, "")
    return JobFailed(job=a_job(type=kind, **fields), duration=duration, queue_time=0, outcome=rj.Retry(1), error=failure)


async def test_attempts_are_counted_by_how_they_ended_and_timed(app, reader):
    release = asyncio.Event()

    @app.job(name="good", queue="a")
    async def good():
        await release.wait()

    @app.job(name="bad", queue="a", max_attempts=2, backoff=lambda attempt, error: 0.01)
    async def bad():
        raise OSError

    async with app, app.running():
        await app.enqueue_many([good.new(), good.new(), bad.new()])
        await until(lambda: (count := points(reader, "rxjobs.job.active").get(of("good", "a"))) and count.value == 2)
        release.set()
        await until_done(app, 3)

    attempts = {key: point.value for key, point in points(reader, "rxjobs.job.attempts").items()}
    assert attempts == {
        of("good", "a", rxjobs__job__outcome="success"): 2,
        of("bad", "a", rxjobs__job__outcome="retry"): 1,
        of("bad", "a", rxjobs__job__outcome="discard"): 1,
    }
    durations = points(reader, "messaging.process.duration")
    assert durations.keys() == {of("good", "a", **PROCESS), of("bad", "a", error__type="OSError", **PROCESS)}
    assert durations[of("good", "a", **PROCESS)].count == 2
    assert durations[of("bad", "a", error__type="OSError", **PROCESS)].count == 2
    assert {point.value for point in points(reader, "rxjobs.job.active").values()} == {0}
    (queued,) = points(reader, "rxjobs.job.queue.duration").items()
    assert queued[0] == by(messaging__destination__name="a")
    assert queued[1].count == 4


async def test_a_running_node_tells_how_deep_its_queues_are(app, reader):
    @app.job(name="later", queue="mail")
    async def later():
        pass

    scheduled = by(messaging__destination__name="mail", rxjobs__job__state="scheduled")
    async with app:
        await app.enqueue_many(later.options(delay=3600).new() for _ in range(3))
        assert points(reader, "rxjobs.queue.depth") == {}
        async with app.running():
            await until(lambda: points(reader, "rxjobs.queue.depth"))
            depths = {key: point.value for key, point in points(reader, "rxjobs.queue.depth").items()}
    assert depths == {scheduled: 3}


def test_durations_are_seconds_in_the_buckets_that_telemetry_names(metrics, reader):
    metrics.hear(started(queue_time=3_000_000_000))
    metrics.hear(stopped(duration=20_000_000))
    (point,) = points(reader, "messaging.process.duration").values()
    assert (point.sum, point.explicit_bounds) == (0.02, names.PROCESS_DURATION.bounds)
    (point,) = points(reader, "rxjobs.job.queue.duration").values()
    assert (point.sum, point.explicit_bounds) == (3.0, names.QUEUE_DURATION.bounds)


@pytest.mark.parametrize(
    ("outcome", "name"),
    [(COMPLETE, "success"), (rj.Cancel(), "cancel"), (rj.Snooze(1), "snooze"), (rj.Release(), "abort")],
)
def test_what_is_no_failure_has_no_error_type(metrics, reader, outcome, name):
    metrics.hear(stopped(outcome=outcome))
    assert points(reader, "rxjobs.job.attempts").keys() == {of("work", rxjobs__job__outcome=name)}
    assert points(reader, "messaging.process.duration").keys() == {of("work", **PROCESS)}


async def test_a_job_that_an_open_breaker_keeps_back_is_counted_as_a_reject(app, reader):
    @app.job(name="work", breaker=rj.Breaker(fail_max=1, reset_timeout=60))
    async def work():
        raise OSError

    for _ in range(3):
        await work.perform(a_job(definition=work), None)
    attempts = {key: point.value for key, point in points(reader, "rxjobs.job.attempts").items()}
    assert attempts == {of("work", rxjobs__job__outcome="retry"): 1, of("work", rxjobs__job__outcome="reject"): 2}


def test_a_job_type_that_is_not_registered_is_other(metrics, reader):
    for kind in ("work", "made up", "invented"):
        metrics.hear(stopped(kind))
    attempts = {key: point.value for key, point in points(reader, "rxjobs.job.attempts").items()}
    assert attempts == {of("work", rxjobs__job__outcome="success"): 1, of("_OTHER", rxjobs__job__outcome="success"): 2}


def test_the_twenty_first_error_of_a_job_type_is_other_in_whatever_queue(metrics, reader):
    for number in range(25):
        metrics.hear(failed(f"E{number}", queue="ab"[number % 2]))
    metrics.hear(failed("E0", queue="b"))
    seen = {dict(key)["error.type"] for key in points(reader, "messaging.process.duration")}
    assert seen == {f"E{number}" for number in range(20)} | {"_OTHER"}


def test_depths_are_told_while_they_are_fresh_and_a_queue_that_was_emptied_is_zero(telemetry, reader):
    now = 0.0
    metrics = Metrics({}, telemetry, clock=lambda: now)
    assert points(reader, "rxjobs.queue.depth") == {}

    def depths():
        return {key: point.value for key, point in points(reader, "rxjobs.queue.depth").items()}

    metrics.observe({("mail", "available"): (3, 7.5), ("mail", "executing"): (1, None)})
    available = by(messaging__destination__name="mail", rxjobs__job__state="available")
    executing = by(messaging__destination__name="mail", rxjobs__job__state="executing")
    assert depths() == {available: 3, executing: 1}
    metrics.observe({("mail", "available"): (2, 0.5)})
    assert depths() == {available: 2, executing: 0}
    now = 30.5
    assert depths() == {}


def test_what_queues_are_limited_to_is_told_while_it_is_fresh_and_no_more_when_it_is_lifted(telemetry, reader):
    now = 0.0
    metrics = Metrics({}, telemetry, clock=lambda: now)

    def limits():
        told = [points(reader, name) for name in ("rxjobs.queue.concurrency.limit", "rxjobs.queue.rate.limit")]
        return [{key: point.value for key, point in one.items()} for one in told]

    mail, web = by(messaging__destination__name="mail"), by(messaging__destination__name="web")
    metrics.observe({}, {"mail": (5, None), "web": (3, 2.5), "by_key": (None, None)})
    assert limits() == [{mail: 5, web: 3}, {web: 2.5}]
    metrics.observe({}, {"mail": (5, None)})
    assert limits() == [{mail: 5}, {}]
    now = 30.5
    assert limits() == [{}, {}]


def test_two_apps_share_their_instruments_and_what_both_see_is_not_added_up(telemetry, reader, caplog):
    one, other = Metrics({"work"}, telemetry), Metrics({"work"}, telemetry)
    for metrics in (one, other):
        metrics.hear(stopped())
        metrics.observe({("mail", "available"): (3, None)})
    assert [point.value for point in points(reader, "rxjobs.job.attempts").values()] == [2]
    assert [point.value for point in points(reader, "rxjobs.queue.depth").values()] == [3]
    assert caplog.records == []


def test_an_app_that_is_let_go_is_not_kept_by_its_metrics(telemetry):
    metrics = weakref.ref(Metrics({}, telemetry))
    gc.collect()
    assert metrics() is None


async def test_a_duration_has_an_exemplar_in_the_trace_of_its_job(telemetry, reader, spans):
    events = EventStream()

    async def work():
        pass

    definition = job_type(work, events=events, middleware=(Tracing(telemetry).middleware(job_type(work)),))
    metrics = Metrics({definition.name}, telemetry)
    events.subscribe(metrics.hear)
    await definition.perform(a_job(definition=definition), None)
    (span,) = spans.get_finished_spans()
    (point,) = points(reader, "messaging.process.duration").values()
    assert [exemplar.span_id for exemplar in point.exemplars] == [span.context.span_id]


async def test_a_listener_that_raises_harms_neither_the_jobs_nor_the_metrics(app, reader, caplog):
    def broken(event):
        raise RuntimeError

    app.events.subscribe(broken)

    @app.job(name="work")
    async def work(n):
        pass

    async with app:
        await app.enqueue_many(work.new(n) for n in range(5))
        await run_until_done(app, 5)
    assert [point.value for point in points(reader, "rxjobs.job.attempts").values()] == [5]
    assert sum("left out" in record.getMessage() for record in caplog.records) == 1


async def test_a_job_costs_two_records_of_a_histogram_and_an_unsampled_one_no_span(monkeypatch):
    calls = []
    telemetry = Telemetry(
        tracer_provider=TracerProvider(shutdown_on_exit=False),
        meter_provider=MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False),
    )

    def count(kind, name):
        was = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda *args, **kwargs: (calls.append(name), was(*args, **kwargs))[1])

    count(type(telemetry.tracer), "start_span")
    count(type(telemetry.meter_provider.get_meter("test").create_histogram("test")), "record")
    app = rj.App(telemetry=telemetry)

    @app.job(name="work")
    async def work():
        pass

    unsampled = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}
    await work.perform(a_job(definition=work, meta=unsampled), None)
    assert calls == ["record", "record"]
    calls.clear()
    await work.perform(a_job(definition=work), None)
    assert sorted(calls) == ["record", "record", "start_span"]


LATE = """
import asyncio
import time
import rxjobs as rj
from rxjobs.testing.jobs import a_job
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

app = rj.App()

@app.job(name="work")
async def work():
    pass

async def run():
    await work.perform(a_job(definition=work), None)

asyncio.run(run())
assert not app._signals.metrics.is_watching
reader, spans = InMemoryMetricReader(), InMemorySpanExporter()
metrics.set_meter_provider(MeterProvider([reader]))
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
end = time.monotonic() + 10  # within LOOK_SECONDS it is noticed
while not spans.get_finished_spans() and time.monotonic() < end:
    asyncio.run(run())
assert app._signals.metrics.is_watching
told = {m.name for r in reader.get_metrics_data().resource_metrics for s in r.scope_metrics for m in s.metrics}
assert {"rxjobs.job.attempts", "rxjobs.job.active", "messaging.process.duration"} <= told, told
assert [span.name for span in spans.get_finished_spans()] == ["process default"]
print("heard")
"""


def test_providers_that_the_host_sets_after_the_app_was_made_are_used():
    ran = subprocess.run([sys.executable, "-W", "error", "-c", LATE], capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == "heard", ran.stderr


def test_outcomes_that_came_too_late_and_queues_that_stand_still_are_counted(metrics, reader):
    for _ in range(2):
        metrics.hear(JobStale(job=a_job(queue="mail")))
    metrics.hear(QueueStalled(queue="sms", seconds=30.0))
    for name, queue, count in (("rxjobs.ack.stale", "mail", 2), ("rxjobs.queue.stalled", "sms", 1)):
        assert points(reader, name)[by(messaging__destination__name=queue)].value == count


def test_metrics_log_nothing_by_themselves(metrics, reader, caplog):
    caplog.set_level(logging.DEBUG)
    metrics.hear(started())
    metrics.hear(stopped())
    points(reader, "rxjobs.job.attempts")
    assert caplog.records == []
