"""Collectors to export to: those that take everything, and those that do not answer, answer nonsense, or are not there."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.servers import find_free_port

TRACES, METRICS, LOGS = "/v1/traces", "/v1/metrics", "/v1/logs"
REQUESTS = {
    TRACES: trace_service_pb2.ExportTraceServiceRequest,
    METRICS: metrics_service_pb2.ExportMetricsServiceRequest,
    LOGS: logs_service_pb2.ExportLogsServiceRequest,
}


class Link(NamedTuple):
    """A link of a span."""

    trace_id: str
    span_id: str
    kind: Any


class Told(NamedTuple):
    """A span as it arrived."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    links: list[Link]
    status: str
    events: list[tuple[str, dict[str, Any]]]
    resource: dict[str, Any]
    began: int


class Received:
    """What arrived by OTLP."""

    def __init__(self) -> None:
        self.resources: list[dict[str, str]] = []
        self.spans: list[str] = []
        self.traces: list[Told] = []
        self.metrics: set[str] = set()
        self.exemplars: dict[str, set[str]] = {}
        """The traces of the exemplars of each metric."""
        self.logs: list[tuple[str, str]] = []
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        """The named log records: name, trace and attributes."""

    def named(self, name: str) -> list[Told]:
        """The spans of that name, in the order in which they began."""
        return sorted((span for span in self.traces if span.name == name), key=lambda span: span.began)

    def take(self, path: str, request: Any) -> None:
        """Take a request in."""
        what = path.removeprefix("/v1/").replace("traces", "spans")
        for group in getattr(request, f"resource_{what}"):
            resource = attributes_of(group.resource)
            self.resources.append(resource)
            for scope in getattr(group, f"scope_{what}"):
                match path:
                    case "/v1/traces":
                        self.spans += [span.name for span in scope.spans]
                        self.traces += [_told(span, resource) for span in scope.spans]
                    case "/v1/metrics":
                        self.metrics |= {metric.name for metric in scope.metrics}
                        for metric in scope.metrics:
                            traces = self.exemplars.setdefault(metric.name, set())
                            for point in metric.histogram.data_points:
                                traces |= {exemplar.trace_id.hex() for exemplar in point.exemplars}
                    case "/v1/logs":
                        self.logs += [(record.body.string_value, record.trace_id.hex()) for record in scope.log_records]
                        self.events += [
                            (record.event_name, record.trace_id.hex(), attributes_of(record))
                            for record in scope.log_records
                            if record.event_name
                        ]


def attributes_of(message: Any) -> dict[str, Any]:
    """The attributes of a message."""
    return {pair.key: _value(pair.value) for pair in message.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


def _told(span: Span, resource: dict[str, Any]) -> Told:
    return Told(
        span.name,
        Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        attributes_of(span),
        [Link(one.trace_id.hex(), one.span_id.hex(), attributes_of(one).get("rxjobs.link.kind")) for one in span.links],
        Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_"),
        [(event.name, attributes_of(event)) for event in span.events],
        resource,
        span.start_time_unix_nano,
    )


@contextmanager
def receiving() -> Iterator[tuple[str, Received]]:
    """A collector's address, and what it has received by HTTP."""
    received = Received()

    def take(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        request = REQUESTS[handler.path]()
        request.ParseFromString(gzip.decompress(body) if handler.headers.get("Content-Encoding") == "gzip" else body)
        received.take(handler.path, request)
        handler.send_response(200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with _http(take) as endpoint:
        yield endpoint, received


@contextmanager
def receiving_grpc() -> Iterator[tuple[str, Received]]:
    """A collector's address, and what it has received by gRPC."""
    received = Received()
    server = grpc.server(futures.ThreadPoolExecutor(4))

    def servicer(base: type, path: str, answer: Any) -> Any:
        def export(self: Any, request: Any, context: Any) -> Any:
            received.take(path, request)
            return answer

        return type("Servicer", (base,), {"Export": export})()

    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(
        servicer(trace_service_pb2_grpc.TraceServiceServicer, TRACES, trace_service_pb2.ExportTraceServiceResponse()), server
    )
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(
        servicer(metrics_service_pb2_grpc.MetricsServiceServicer, METRICS, metrics_service_pb2.ExportMetricsServiceResponse()),
        server,
    )
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(
        servicer(logs_service_pb2_grpc.LogsServiceServicer, LOGS, logs_service_pb2.ExportLogsServiceResponse()), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", received
    finally:
        server.stop(None).wait()


@contextmanager
def answering() -> Iterator[str]:
    """The address of a collector that answers at once, and looks at nothing."""

    def take(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with _http(take) as endpoint:
        yield endpoint


@contextmanager
def silent() -> Iterator[str]:
    """The address of a collector that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def absent() -> Iterator[str]:
    """An address where connections are refused."""
    yield f"http://127.0.0.1:{find_free_port()}"


@contextmanager
def slow() -> Iterator[str]:
    """The address of a collector that takes three seconds for each answer."""

    def wait(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        time.sleep(3)
        handler.send_response(200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with _http(wait) as endpoint:
        yield endpoint


@contextmanager
def overloaded() -> Iterator[str]:
    """The address of a collector that answers 503."""

    def refuse(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(503)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with _http(refuse) as endpoint:
        yield endpoint


@contextmanager
def babbling() -> Iterator[str]:
    """The address of a collector that answers what is no answer."""

    def babble(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.wfile.write(b"\x00\xff no HTTP at all \r\n" * 100)
        handler.close_connection = True

    with _http(babble) as endpoint:
        yield endpoint


@contextmanager
def _http(answer: Callable[[BaseHTTPRequestHandler, bytes], None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                answer(self, self.rfile.read(int(self.headers["Content-Length"])))
            except ConnectionError:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
