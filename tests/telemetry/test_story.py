"""A whole story, from a real worker to a real receiver: enqueued, failed, retried, kept back by a breaker, done; a dead letter."""

from __future__ import annotations

import asyncio
import time

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import rxjobs as rj
from tests.telemetry.collector import receiving, receiving_grpc
from tests.telemetry.worker import working

APP = """
import logging
import rxjobs as rj

app = rj.App()


class Declined(Exception):
    pass


@app.job(name="charge", queue="pay", timeout=30, backoff=lambda attempt, error: 0.05,
         breaker=rj.Breaker(fail_max=2, reset_timeout=0.3))
async def charge(amount: int) -> None:
    logging.getLogger("shop").warning("charging %d", amount)
    if rj.current_job().attempt < 3:
        raise Declined(f"card {amount}")


@app.job(name="ship", queue="pay", max_attempts=1, breaker=None)
def ship(parcel: str) -> None:
    raise LookupError(parcel)
"""


async def tell(dsn, telemetry):
    """Enqueue a job of each, and wait until they have ended; gives the jobs."""
    producer = rj.App(dsn, telemetry=telemetry, migrate=True)

    @producer.job(name="charge", queue="pay")
    async def charge(amount: int) -> None: ...

    @producer.job(name="ship", queue="pay", max_attempts=1)
    async def ship(parcel: str) -> None: ...

    async with producer:
        charged, shipped = await charge.enqueue(amount=7), await ship.enqueue(parcel="lost")
        deadline = time.monotonic() + 60
        while True:
            ends = [await producer.jobs.get(one.id) for one in (charged, shipped)]
            if [str(one.state) for one in ends] == ["completed", "discarded"]:
                return ends
            assert time.monotonic() < deadline, ends
            await asyncio.sleep(0.05)


def kinds_of_links(span):
    return sorted(link.kind for link in span.links)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_story_is_told_by_spans_links_logs_and_metrics(dsn, tmp_path, protocol):
    collector = receiving if protocol == "http/protobuf" else receiving_grpc
    with collector() as (endpoint, received):
        exporter = HttpExporter(f"{endpoint}/v1/traces") if protocol == "http/protobuf" else GrpcExporter(endpoint, insecure=True)
        provider = TracerProvider(resource=Resource({"service.name": "producer"}), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_LOGS_EXPORTER": "otlp",
            "OTEL_SEMCONV_EXCEPTION_SIGNAL_OPT_IN": "logs/dup",
            "RXJOBS_TELEMETRY_SPANS": "fetch=on,ack=on",
            "RXJOBS_NODE": "till",
        }
        with working(tmp_path, APP, dsn, **environ) as worker:
            charged, shipped = asyncio.run(tell(dsn, rj.Telemetry(tracer_provider=provider)))
            worker.stop()
        provider.shutdown()

    # the job that is retried
    enqueue = next(span for span in received.named("enqueue pay") if span.attributes["rxjobs.job.kind"] == "charge")
    assert (enqueue.kind, enqueue.parent_id, enqueue.status) == ("PRODUCER", "", "UNSET")
    assert enqueue.resource["service.name"] == "producer"
    assert (
        enqueue.attributes
        | {
            "messaging.system": "rxjobs",
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": "send",
            "messaging.destination.name": "pay",
            "messaging.message.id": str(charged.id),
            "rxjobs.enqueue.result": "inserted",
        }
        == enqueue.attributes
    )
    attempts = [span for span in received.named("process pay") if span.attributes["rxjobs.job.kind"] == "charge"]
    assert {(span.kind, span.trace_id, span.parent_id) for span in attempts} == {("CONSUMER", enqueue.trace_id, enqueue.span_id)}
    told = [(span.attributes["rxjobs.job.outcome"], span.status, span.attributes.get("error.type")) for span in attempts]
    rejected = [one for one in told if one[0] == "reject"]
    assert [one for one in told if one not in rejected] == [
        ("retry", "ERROR", "told_app.Declined"),
        ("retry", "ERROR", "told_app.Declined"),
        ("success", "UNSET", None),
    ]
    assert set(rejected) <= {("reject", "UNSET", None)}
    first, second, *_, last = attempts
    assert kinds_of_links(first) == ["enqueue"]
    assert kinds_of_links(second) == ["enqueue", "previous_attempt"]
    assert {link.span_id for link in second.links} == {enqueue.span_id, first.span_id}
    assert {link.span_id for link in last.links} == {enqueue.span_id, second.span_id}
    assert first.attributes["rxjobs.job.attempt"] == 1
    assert first.attributes["rxjobs.job.executor"] == "async"
    assert first.attributes["rxjobs.job.queue_time"] >= 0
    assert first.attributes["code.function.name"] == "told_app.charge"
    assert "rxjobs.job.retry_at" in first.attributes
    assert first.attributes["messaging.client.id"] == first.attributes["rxjobs.worker.id"]
    assert first.attributes["messaging.client.id"] != enqueue.attributes["messaging.client.id"]
    (exception,) = [of for name, of in first.events if name == "exception"]
    assert (exception["exception.type"], exception["exception.message"]) == ("told_app.Declined", "card 7")
    assert "raise Declined" in exception["exception.stacktrace"]
    assert [error["span_id"] for error in charged.errors] == [first.span_id, second.span_id]
    assert {error["trace_id"] for error in charged.errors} == {enqueue.trace_id}

    # the breaker
    (opened,) = [of for name, of in second.events if name == "rxjobs.breaker.transition"]
    assert (opened["rxjobs.breaker.name"], opened["rxjobs.breaker.before"], opened["rxjobs.breaker.state"]) == (
        "charge", "closed", "open",
    )  # fmt: skip
    assert (opened["rxjobs.breaker.failures"], opened["rxjobs.breaker.open_seconds"]) == (2, 0.0)
    (closed,) = [
        of for name, _, of in received.events if name == "rxjobs.breaker.transition" and of["rxjobs.breaker.state"] == "closed"
    ]
    assert closed["rxjobs.breaker.open_seconds"] >= 0.3
    moved = [of["rxjobs.breaker.state"] for name, _, of in received.events if name == "rxjobs.breaker.transition"]
    assert moved == ["open", "half_open", "closed"]

    # the job that is a dead letter
    send = next(span for span in received.named("enqueue pay") if span.attributes["rxjobs.job.kind"] == "ship")
    (process,) = [span for span in received.named("process pay") if span.attributes["rxjobs.job.kind"] == "ship"]
    assert (process.trace_id, process.parent_id) == (send.trace_id, send.span_id)
    assert (process.attributes["rxjobs.job.outcome"], process.status) == ("discard", "ERROR")
    assert process.attributes["rxjobs.job.executor"] == "thread"
    (discard,) = received.named("discard pay")
    assert (discard.kind, discard.parent_id, discard.trace_id) == ("INTERNAL", process.span_id, send.trace_id)
    assert discard.attributes["rxjobs.discard.reason"] == "max_attempts"
    (dead,) = [(trace_id, of) for name, trace_id, of in received.events if name == "rxjobs.job.discarded"]
    assert dead[0] == send.trace_id
    assert dead[1]["rxjobs.job.id"] == str(shipped.id)
    failures = [(trace_id, of["exception.type"]) for name, trace_id, of in received.events if name.endswith(".exception")]
    assert sorted(failures) == sorted([(enqueue.trace_id, "told_app.Declined")] * 2 + [(send.trace_id, "LookupError")])

    # what the worker did in batches
    fetches = received.named("fetch pay")
    assert {(span.kind, span.parent_id, span.attributes["messaging.operation.type"]) for span in fetches} == {
        ("CLIENT", "", "receive")
    }
    assert enqueue.span_id in {link.span_id for span in fetches for link in span.links}
    acks = received.named("ack pay")
    assert {(span.kind, span.attributes["messaging.operation.type"]) for span in acks} == {("CLIENT", "settle")}
    assert sum(span.attributes["messaging.batch.message_count"] for span in acks) == len(attempts) + 1

    # logs, metrics, and who tells
    assert {trace_id for body, trace_id in received.logs if body.startswith("charging")} == {enqueue.trace_id}
    assert received.exemplars["messaging.process.duration"] <= {enqueue.trace_id, send.trace_id}
    assert received.exemplars["messaging.process.duration"]
    assert {"rxjobs.job.lifetime.duration", "rxjobs.leader.status"} <= received.metrics
    (of_worker,) = {tuple(sorted(span.resource.items())) for span in (*attempts, *fetches)}
    resource = dict(of_worker)
    assert resource["rxjobs.node.label"] == "till"
    assert resource["service.instance.id"] == first.attributes["rxjobs.worker.id"]
