"""Collectors to export to: one that takes everything, one that never answers, and one that is not there."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.servers import find_free_port

REQUESTS = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


class Received:
    """What arrived by OTLP over HTTP."""

    def __init__(self) -> None:
        self.resources: list[dict[str, str]] = []
        self.spans: list[str] = []
        self.metrics: set[str] = set()
        self.logs: list[tuple[str, str]] = []

    def take(self, path: str, body: bytes) -> None:
        request = REQUESTS[path]()
        request.ParseFromString(body)
        for group in getattr(request, f"resource_{path.removeprefix('/v1/').replace('traces', 'spans')}"):
            self.resources.append({pair.key: pair.value.string_value for pair in group.resource.attributes})
            for scope in getattr(group, f"scope_{path.removeprefix('/v1/').replace('traces', 'spans')}"):
                match path:
                    case "/v1/traces":
                        self.spans += [span.name for span in scope.spans]
                    case "/v1/metrics":
                        self.metrics |= {metric.name for metric in scope.metrics}
                    case "/v1/logs":
                        self.logs += [(record.body.string_value, record.trace_id.hex()) for record in scope.log_records]


@contextmanager
def receiving() -> Iterator[tuple[str, Received]]:
    """A collector's address, and what it has received."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.take(self.path, gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


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
