"""One trace from the enqueuer through the job and its retries."""

from __future__ import annotations

import asyncio
import logging

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode, TraceFlags

import rxjobs as rj
from rxjobs.outcome import COMPLETE
from rxjobs.telemetry.enqueuing import Enqueuing
from rxjobs.telemetry.providers import Telemetry
from rxjobs.telemetry.signals import server_of
from rxjobs.telemetry.tracing import Tracing
from rxjobs.testing.jobs import a_job, job_type
from tests.telemetry.seen import named, run_until_done, until

A_TRACE, A_SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
SAMPLED = {"traceparent": f"00-{A_TRACE:032x}-{A_SPAN:016x}-01"}
UNSAMPLED = {"traceparent": f"00-{A_TRACE:032x}-{A_SPAN:016x}-00"}


def traced(tracing, function, **options):
    """A job type with a tracing around it."""
    definition = job_type(function, **options)
    return job_type(function, middleware=(tracing.middleware(definition),), **options)


async def run(definition, **fields):
    finished = await definition.perform(a_job(definition=definition, **fields), None)
    return finished.outcome


@pytest.fixture
def tracing(telemetry):
    return Tracing(telemetry)


@pytest.fixture
def tracer(tracer_provider):
    return tracer_provider.get_tracer("test")


class Charge(Exception):
    """What a job of these tests raises."""


# the whole way


async def test_each_job_of_a_batch_has_the_span_of_its_attempt(app, spans):
    calls = []

    @app.job(name="store", queue="mail", timeout=30)
    async def store(n):
        pytest.fail("a batch does not call it")

    async def write(jobs):
        calls.append(len(jobs))
        return {job.id: rj.Discard(f"no {job.args['n']}") for job in jobs if job.args["n"] == 2}

    async with app:
        await app.enqueue_many([store.new(n) for n in (1, 2, 3)])
        app.pipeline(app.source("mail", max_demand=10).pipe(rj.buffer(3, 5), rj.execute_batch(write), rj.ack()))
        await run_until_done(app, 3)

    assert calls == [3]
    attempts = named(spans, "process mail")
    assert sorted(span.attributes["rxjobs.job.outcome"] for span in attempts) == ["discard", "success", "success"]
    created = {span.context.span_id: span.attributes["messaging.message.id"] for span in named(spans, "create mail")}
    assert {span.parent.span_id: span.attributes["messaging.message.id"] for span in attempts} == created
    (failed,) = [span for span in attempts if span.status.status_code is StatusCode.ERROR]
    assert failed.status.description == "no 2"


async def test_an_enqueue_and_all_three_attempts_are_one_trace_in_which_each_attempt_links_to_the_one_before(app, spans):
    attempts = []

    @app.job(name="send", queue="mail", backoff=lambda attempt, error: 0.01, max_attempts=5)
    async def send(n):
        attempts.append(rj.current_job())
        if len(attempts) < 3:
            raise Charge(f"no {n}")

    async with app:
        row = await send.options(priority=3).enqueue(7)
        await run_until_done(app, 1)

    (enqueue,) = named(spans, "enqueue mail")
    first, second, third = named(spans, "process mail")
    assert {span.context.trace_id for span in (enqueue, first, second, third)} == {enqueue.context.trace_id}
    assert [span.parent.span_id for span in (first, second, third)] == [enqueue.context.span_id] * 3
    assert enqueue.parent is None
    assert enqueue.kind is SpanKind.PRODUCER
    assert first.kind is second.kind is third.kind is SpanKind.CONSUMER

    def links(span):
        return [(link.attributes["rxjobs.link.kind"], link.context.span_id) for link in span.links]

    by_enqueue = ("enqueue", enqueue.context.span_id)
    assert links(first) == [by_enqueue]
    assert links(second) == [by_enqueue, ("previous_attempt", first.context.span_id)]
    assert links(third) == [by_enqueue, ("previous_attempt", second.context.span_id)]

    assert dict(enqueue.attributes) == {
        "messaging.system": "rxjobs",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(row.id),
        "rxjobs.job.kind": send.name,
        "rxjobs.job.priority": 3,
        "rxjobs.enqueue.result": "inserted",
        "messaging.client.id": str(app.id),
        **server_of(app.settings.dsn),
    }
    seen = dict(second.attributes)
    assert 0 < seen.pop("rxjobs.job.queue_time") < 20
    assert seen.pop("rxjobs.job.retry_at")
    assert seen == {
        "messaging.system": "rxjobs",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(row.id),
        "rxjobs.job.kind": send.name,
        "rxjobs.job.attempt": 2,
        "rxjobs.job.max_attempts": 5,
        "rxjobs.job.priority": 3,
        "rxjobs.job.outcome": "retry",
        "rxjobs.job.executor": "async",
        "messaging.client.id": str(app.id),
        **server_of(app.settings.dsn),
        "rxjobs.worker.id": str(attempts[1].node),
        "code.function.name": f"{__name__}.{send.function.__qualname__}",
        "error.type": f"{__name__}.Charge",
    }
    assert [span.attributes["rxjobs.job.outcome"] for span in (first, second, third)] == ["retry", "retry", "success"]
    assert [span.status.status_code for span in (first, second, third)] == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]
    assert "error.type" not in third.attributes
    assert second.status.description == "no 7"
    (event,) = second.events
    assert event.name == "exception"
    assert event.attributes["exception.type"] == f"{__name__}.Charge"
    assert event.attributes["exception.message"] == "no 7"
    assert "raise Charge" in event.attributes["exception.stacktrace"]
    assert enqueue.instrumentation_scope.name == "rxjobs"
    assert enqueue.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"


async def test_the_errors_of_a_job_name_its_trace_and_the_span_of_each_attempt(app, spans):
    @app.job(name="fail", backoff=lambda attempt, error: 0.01, max_attempts=2)
    async def fail():
        raise Charge

    async with app:
        row = await fail.enqueue()
        await run_until_done(app, 1)
        job = await app.jobs.get(row.id)

    first, second = named(spans, "process")
    assert [error["trace_id"] for error in job.errors] == [f"{first.context.trace_id:032x}"] * 2
    assert [error["span_id"] for error in job.errors] == [f"{first.context.span_id:016x}", f"{second.context.span_id:016x}"]
    assert second.attributes["rxjobs.job.outcome"] == "discard"
    assert second.status.status_code is StatusCode.ERROR


async def test_a_job_enqueued_inside_a_span_or_a_job_goes_on_in_its_trace(app, spans, tracer):
    @app.job(name="outer")
    async def outer():
        await inner.enqueue()

    @app.job(name="inner")
    async def inner():
        pass

    async with app:
        with tracer.start_as_current_span("request") as request:
            await outer.enqueue()
        await run_until_done(app, 2)

    chain = [*named(spans, "request"), *(named(spans, "enqueue") + named(spans, "process"))]
    chain.sort(key=lambda span: span.start_time)
    assert [span.name.split()[0] for span in chain] == ["request", "enqueue", "process", "enqueue", "process"]
    assert {span.context.trace_id for span in chain} == {request.get_span_context().trace_id}
    assert [span.parent.span_id for span in chain[1:]] == [span.context.span_id for span in chain[:-1]]


async def test_each_job_of_a_small_batch_has_a_span_of_its_own_which_that_of_the_batch_links_to(app, spans):
    @app.job(name="send", queue="mail")
    async def send(n):
        pass

    async with app:
        rows = await app.enqueue_many([send.new(1), send.new(2)])
        await run_until_done(app, 2)

    (enqueue,), created = named(spans, "enqueue mail"), named(spans, "create mail")
    assert (enqueue.kind, enqueue.attributes["messaging.batch.message_count"]) == (SpanKind.CLIENT, 2)
    assert {span.kind for span in created} == {SpanKind.PRODUCER}
    assert [span.attributes["messaging.message.id"] for span in created] == [str(row.id) for row in rows]
    assert {link.context.span_id for link in enqueue.links} == {span.context.span_id for span in created}
    assert {span.parent.span_id for span in named(spans, "process mail")} == {span.context.span_id for span in created}


async def test_a_batch_that_is_larger_is_one_span_whose_context_goes_with_every_job(dsn, spans, tracer_provider):
    app = rj.App(dsn, telemetry=Telemetry(tracer_provider=tracer_provider, create_span_limit=2), migrate=True)

    @app.job(name="send", queue="mail")
    async def send(n):
        pass

    @app.job(name="receive", queue="mail")
    async def receive(n):
        pass

    async with app:
        await app.enqueue_many([send.new(1), receive.new(2), send.new(3)])
        await run_until_done(app, 3)

    (enqueue,) = named(spans, "enqueue mail")
    assert enqueue.attributes["messaging.batch.message_count"] == 3
    assert enqueue.attributes["rxjobs.job.kinds"] == tuple(sorted([send.name, receive.name]))
    assert "messaging.message.id" not in enqueue.attributes
    assert enqueue.kind is SpanKind.PRODUCER
    assert [span.parent.span_id for span in named(spans, "process mail")] == [enqueue.context.span_id] * 3


async def test_a_batch_for_several_queues_names_none(app, spans):
    @app.job(name="one", queue="a")
    async def one():
        pass

    @app.job(name="other", queue="b")
    async def other():
        pass

    async with app:
        await app.enqueue_many([one.new(), other.new()])
    *created, span = spans.get_finished_spans()
    assert [one.name for one in created] == ["create a", "create b"]
    assert span.name == "enqueue"
    assert "messaging.destination.name" not in span.attributes


async def test_a_refused_insert_is_a_failed_span(app, spans):
    @app.job(name="work")
    async def work():
        pass

    async with app:
        with pytest.raises(rj.InvalidOption):
            await app.enqueue_many([work.new()], connection=object())
        connection = await app.store.database.connect()
        await connection.close()
        with pytest.raises(Exception, match="closed"):
            await app.enqueue(work.new(), connection=connection)
    *_, span = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "asyncpg.exceptions._base.InterfaceError"


async def test_two_hundred_jobs_at_once_keep_their_own_traces_apart(app, spans, tracer):
    @app.job(name="work")
    async def work(n):
        await asyncio.sleep(0.001 * (n % 5))
        with tracer.start_as_current_span(f"inside {n}"):
            await asyncio.sleep(0.001)

    async def request(n):
        with tracer.start_as_current_span(f"request {n}"):
            await work.enqueue(n)

    async with app:
        await asyncio.gather(*(request(n) for n in range(200)))
        await run_until_done(app, 200)

    by_id = {span.context.span_id: span for span in spans.get_finished_spans()}
    requests = set()
    for inside in named(spans, "inside"):
        process = by_id[inside.parent.span_id]
        enqueue = by_id[process.parent.span_id]
        request_span = by_id[enqueue.parent.span_id]
        assert [span.name.split()[0] for span in (process, enqueue, request_span)] == ["process", "enqueue", "request"]
        assert request_span.name.split()[1] == inside.name.split()[1]
        requests.add(request_span.name)
    assert len(requests) == 200


# where a job's code runs


@pytest.mark.parametrize("on", [rj.on_loop, lambda: rj.in_threads(2)], ids=["on the loop", "in a thread"])
async def test_a_span_made_inside_a_job_is_a_child_of_its_process_span(tracing, tracer, spans, on):
    def work():
        tracer.start_span("inside").end()

    executor = on()
    definition = traced(tracing, work, on=executor)
    assert await run(definition, meta=SAMPLED) == COMPLETE
    (inside,), (process,) = named(spans, "inside"), named(spans, "process")
    assert inside.parent.span_id == process.context.span_id
    assert inside.context.trace_id == process.context.trace_id == A_TRACE
    await executor.close()


async def test_nothing_of_a_span_is_left_behind_in_the_task_that_ran_the_job(tracing):
    async def work():
        assert trace.get_current_span().get_span_context().is_valid

    assert await run(traced(tracing, work), meta=SAMPLED) == COMPLETE
    assert not trace.get_current_span().get_span_context().is_valid


# sampling, and no SDK


class CountingTracer(trace.NoOpTracer):
    def __init__(self):
        self.begun = 0

    def start_span(self, *args, **kwargs):
        self.begun += 1
        return super().start_span(*args, **kwargs)


async def test_a_job_of_an_unsampled_trace_starts_no_span_and_yet_runs_in_that_trace():
    class Provider(trace.TracerProvider):
        tracer = CountingTracer()

        def get_tracer(self, *args, **kwargs):
            return self.tracer

    inside = []

    async def work():
        inside.append(trace.get_current_span().get_span_context())
        raise Charge

    outcome = await run(traced(Tracing(Telemetry(tracer_provider=Provider())), work), meta=UNSAMPLED)
    assert Provider.tracer.begun == 0
    assert (inside[0].trace_id, inside[0].span_id, inside[0].trace_flags.sampled) == (A_TRACE, A_SPAN, False)
    assert outcome.failure.trace_id == f"{A_TRACE:032x}"
    assert outcome.failure.span_id is None


async def test_an_unsampled_enqueue_makes_its_job_unsampled(app, spans, dsn):
    unsampled = Telemetry(tracer_provider=TracerProvider(ALWAYS_OFF, shutdown_on_exit=False))
    off = rj.App(dsn, telemetry=unsampled, migrate=True)

    for one in (off, app):

        @one.job(name="work")
        async def work():
            pass

    async with off:
        row = await off.enqueue(off.definition("work").new())
        *_, flags = (await off.jobs.get(row.id)).meta["traceparent"].split("-")
        assert not int(flags, 16) & TraceFlags.SAMPLED
    await run_until_done(app, 1)
    assert named(spans, "process") == named(spans, "discard") == []


async def test_without_a_provider_nothing_is_stored_with_a_job_and_nothing_is_around_it(dsn):
    app = rj.App(dsn, migrate=True)
    inside = []

    @app.job(name="work", meta={"own": 1})
    async def work():
        inside.append(trace.get_current_span())

    async with app:
        row = await work.enqueue()
        await run_until_done(app, 1)
        assert (await app.jobs.get(row.id)).meta == {"own": 1}
    assert inside == [trace.INVALID_SPAN]


async def test_a_context_given_by_hand_wins(app, spans):
    @app.job(name="work", meta=SAMPLED)
    async def work():
        pass

    async with app:
        row = await work.enqueue()
        assert (await app.jobs.get(row.id)).meta == SAMPLED
        await run_until_done(app, 1)
    (process,) = named(spans, "process")
    assert (process.context.trace_id, process.parent.span_id) == (A_TRACE, A_SPAN)


async def test_a_job_without_a_context_begins_a_trace_of_its_own_and_links_to_where_its_process_is(tracing, tracer, spans):
    async def work():
        pass

    with tracer.start_as_current_span("host") as host:
        await run(traced(tracing, work))
    (process,) = named(spans, "process")
    assert process.parent is None
    assert process.context.trace_id != host.get_span_context().trace_id
    ((kind, span_id),) = [(link.attributes["rxjobs.link.kind"], link.context.span_id) for link in process.links]
    assert (kind, span_id) == ("ambient", host.get_span_context().span_id)


# how it ended


@pytest.mark.parametrize(
    ("outcome", "name", "status"),
    [
        (rj.Complete(1), "success", StatusCode.UNSET),
        (rj.Retry(delay=5), "retry", StatusCode.ERROR),
        (rj.Discard("never"), "discard", StatusCode.ERROR),
        (rj.Cancel("unwanted"), "cancel", StatusCode.UNSET),
        (rj.Snooze(5), "snooze", StatusCode.UNSET),
        (rj.Release(5), "abort", StatusCode.UNSET),
    ],
)
async def test_an_outcome_has_one_word_and_a_status_only_if_it_is_a_failure(tracing, spans, outcome, name, status):
    async def work():
        return outcome

    await run(traced(tracing, work))
    (span,) = spans.get_finished_spans()
    assert (span.attributes["rxjobs.job.outcome"], span.status.status_code) == (name, status)
    assert ("error.type" in span.attributes) == (status is StatusCode.ERROR)
    assert len(span.events) == (1 if status is StatusCode.ERROR else 0)


async def test_an_outcome_that_jobs_share_gets_each_its_own_trace(tracing):
    shared = rj.Discard("never")

    async def work():
        return shared

    definition = traced(tracing, work)
    one, other = await run(definition), await run(definition)
    assert one == other == shared
    assert shared.failure is None
    assert one.failure.type == "rxjobs.Discard"
    assert one.failure.message == "never"
    assert one.failure.duration > 0
    assert one.failure.trace_id != other.failure.trace_id


async def test_a_run_that_is_stopped_is_an_abort_and_no_error(tracing, spans):
    begun = asyncio.Event()

    async def work():
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(run(traced(tracing, work)))
    await begun.wait()
    task.cancel()
    assert isinstance(await task, rj.Release)
    (span,) = spans.get_finished_spans()
    assert (span.attributes["rxjobs.job.outcome"], span.status.status_code) == ("abort", StatusCode.UNSET)


async def test_jobs_of_one_conversation_name_it(app, spans):
    @app.job(name="send", queue="mail", meta={"conversation_id": "order 7"})
    async def send(): ...

    async with app:
        await send.enqueue()
        await run_until_done(app, 1)
    assert named(spans, "process mail")[0].attributes["messaging.message.conversation_id"] == "order 7"


async def test_an_attempt_whose_node_lost_its_lease_says_so_and_is_an_abort(app, spans):
    begun = asyncio.Event()

    @app.job(name="wait", queue="mail")
    async def wait():
        begun.set()
        await asyncio.sleep(60)

    async with app, app.running() as running:
        await wait.enqueue()
        await asyncio.wait_for(begun.wait(), 20)
        running.cut_off()
        await until(lambda: named(spans, "process mail"))
        running.restore()
    (process, *_) = named(spans, "process mail")
    assert [event.name for event in process.events] == ["rxjobs.heartbeat.lost"]
    assert (process.attributes["rxjobs.job.outcome"], process.status.status_code) == ("abort", StatusCode.UNSET)


async def test_what_cron_enqueues_is_a_trace_of_its_own_that_names_the_entry(app, spans, tracer):
    @app.job(name="tick", queue="clock")
    async def tick(): ...

    app.cron("* * * * * *", tick.new(), name="each second")
    with tracer.start_as_current_span("host"):
        async with app, app.running():
            await until(lambda: named(spans, "process clock"))
    enqueue, process = named(spans, "enqueue clock")[0], named(spans, "process clock")[0]
    assert (enqueue.parent, enqueue.attributes["rxjobs.cron.name"]) == (None, "each second")
    assert process.parent.span_id == enqueue.context.span_id


async def test_a_job_that_an_open_breaker_keeps_back_is_a_reject(app, spans):
    @app.job(name="work", breaker=rj.Breaker(fail_max=1, reset_timeout=60), backoff=lambda attempt, error: 60)
    async def work(n):
        raise Charge

    async with app:
        first = a_job(definition=work)
        await work.perform(first, None)
        assert isinstance((await work.perform(a_job(definition=work), None)).outcome, rj.Snooze)
    assert [span.attributes["rxjobs.job.outcome"] for span in named(spans, "process")] == ["retry", "reject"]


async def test_a_middleware_of_the_apps_own_that_raises_is_a_failure_of_the_attempt(tracing, spans):
    async def raises(job, call_next):
        raise Charge("in the middleware")

    async def work():
        pass

    definition = job_type(work, middleware=(tracing.middleware(job_type(work)), raises))
    outcome = await run(definition)
    assert isinstance(outcome, rj.Retry)
    (span,) = spans.get_finished_spans()
    assert span.attributes["error.type"] == f"{__name__}.Charge"
    assert outcome.failure.span_id == f"{span.context.span_id:016x}"


# what harms nothing


class Broken(SpanProcessor):
    def __init__(self, at):
        self.at = at

    def on_start(self, span, parent_context=None):
        if self.at == "start":
            raise RuntimeError("this processor is broken")

    def on_end(self, span):
        if self.at == "end":
            raise RuntimeError("this processor is broken")


@pytest.mark.parametrize("at", ["start", "end"])
async def test_a_processor_that_raises_harms_no_job(at, caplog):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken(at))
    tracing = Tracing(Telemetry(tracer_provider=provider))

    async def work():
        return 7

    definition = traced(tracing, work)
    assert await run(definition) == rj.Complete(7)
    assert await run(definition, meta=SAMPLED) == rj.Complete(7)

    async def insert(news):
        return [rj.Enqueued(1, "available") for _ in news]

    new = rj.NewJob(type="t", queue="q", payload="{}")
    assert await Enqueuing(tracing).around_insert([new], insert) == [rj.Enqueued(1, "available")]
    assert all(record.levelno == logging.ERROR and "\n" not in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "errors", [[{}], [{"trace_id": None}], [{"trace_id": "x", "span_id": 5}], [{"trace_id": "0", "span_id": "0"}]]
)
async def test_errors_that_name_no_span_are_not_linked_to(tracing, spans, errors):
    async def work():
        pass

    assert await run(traced(tracing, work), errors=errors) == COMPLETE
    (span,) = spans.get_finished_spans()
    assert span.links == ()
