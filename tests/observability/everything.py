"""An exporter that tells everything that names.py has: each metric, with each value of its attributes that is a closed set."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from observability.naming import label, metric_name
from rxjobs.telemetry import names

OWN_NAMES = {
    names.MESSAGING_SYSTEM: (names.SYSTEM,),
    names.DESTINATION: ("mail", "text"),
    names.KIND: ("shop.mail", names.OTHER),
    names.ERROR_TYPE: ("", "OSError"),
    names.STAGE_NAME: ("filter",),
    names.BREAKER_NAME: ("shop.mail",),
    names.POOL_NAME: ("rxjobs",),
    names.NOTIFY_CHANNEL: ("rxjobs",),
    names.EVENT_NAME: ("job.stop",),
}
"""Examples of what is no closed set."""


def page(age: float) -> str:
    """All series, `age` seconds after the process began: counters count one each second."""
    return "".join(f"{name}{{{labels}}} {value:.3f}\n" for metric in names.METRICS for name, labels, value in _series(metric, age))


def _series(metric: names.Metric, age: float) -> Iterator[tuple[str, str, float]]:
    name = metric_name(metric)
    choices = [
        [(attribute, value) for value in OWN_NAMES.get(attribute) or names.VALUES[attribute]] for attribute in metric.attributes
    ]
    for chosen in itertools.product(*choices):
        labels = ['instance="a"', *(f'{label(attribute)}="{value}"' for attribute, value in chosen if value)]
        match metric.kind:
            case "counter":
                yield name, ",".join(labels), age
            case "histogram":
                yield from _buckets(metric, name, labels, age)
            case _:
                yield name, ",".join(labels), 1.0


def _buckets(metric: names.Metric, name: str, labels: list[str], age: float) -> Iterator[tuple[str, str, float]]:
    """As many in each bucket as in each other."""
    for place, bound in enumerate((*(f"{bound:g}" for bound in metric.bounds), "+Inf"), start=1):
        yield f"{name}_bucket", ",".join([*labels, f'le="{bound}"']), age * place
    yield f"{name}_sum", ",".join(labels), age
    yield f"{name}_count", ",".join(labels), age * (len(metric.bounds) + 1)


@contextmanager
def told() -> Iterator[str]:
    """Tell it on a port of this machine; gives host and port."""
    began = time.monotonic()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name is http.server's
            body = page(time.monotonic() - began).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
