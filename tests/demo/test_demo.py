"""The demo as its user sees it: a program that ends by itself."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import psutil
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.servers import find_free_port, folder_for_a_server

COMMAND = [sys.executable, "-m", "rxjobs", "demo"]
# pytest-xdist sets COLUMNS, and output that is no terminal's is to be as wide as it comes
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "COLUMNS" and not name.startswith(("RXJOBS_", "OTEL_"))
} | {"PYTHONUTF8": "1"}


class Started:
    """A demo that runs, and every process that it has started so far."""

    def __init__(self, *arguments: str, folder: Path) -> None:
        self._folder = folder
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self.process = subprocess.Popen([*COMMAND, *arguments], stdout=out, stderr=err, cwd=folder, env=ENVIRONMENT)
        self._itself = psutil.Process(self.process.pid)
        self.family: set[psutil.Process] = set()

    def look(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            self.family.update(self._itself.children(recursive=True))

    def wait(self) -> int:
        while self.process.poll() is None:
            self.look()
            time.sleep(0.1)  # to look reads what the machine knows of every process
        return self.process.returncode

    @property
    def left(self) -> list[psutil.Process]:
        _, alive = psutil.wait_procs(self.family, timeout=60)
        return alive

    @property
    def out(self) -> str:
        return (self._folder / "out").read_text("utf-8")

    @property
    def err(self) -> str:
        return (self._folder / "err").read_text("utf-8")


class Collector:
    """Takes what is exported by OTLP over HTTP."""

    def __init__(self) -> None:
        self._requests: list[bytes] = []
        requests = self._requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path == "/v1/traces":
                    requests.append(body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def spans(self) -> list[Any]:
        requests = [ExportTraceServiceRequest.FromString(body) for body in self._requests]
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("files", "least"),
    [pytest.param(["--files", "60"], 50, id="a part"), pytest.param([], 1_000, marks=pytest.mark.long, id="the whole")],
)
def test_the_demo_indexes_the_library_beside_an_earlier_one_and_leaves_no_process(
    dsn: str, tmp_path: Path, files: list[str], least: int
):
    earlier = Started("--dsn", dsn, "--files", "10", "--json", folder=tmp_path)
    assert earlier.wait() == 0, earlier.err
    assert json.loads(earlier.out)["jobs"] < 100

    demo = Started("--dsn", dsn, "--json", *files, folder=tmp_path)
    assert demo.wait() == 0, demo.err
    summary = json.loads(demo.out)
    assert summary["problems"] == []
    assert summary["totals"]["files"] == summary["states"]["index_file"]["completed"] >= least  # not all of them are Python
    assert summary["jobs"] == sum(sum(states.values()) for states in summary["states"].values())
    lines = [module["lines"] for module in summary["largest"]]
    assert lines == sorted(lines, reverse=True)
    assert len(lines) == 10
    assert demo.family
    assert not demo.left


def test_without_a_terminal_there_are_plain_lines_and_a_summary(dsn: str, tmp_path: Path):
    demo = Started("--dsn", dsn, "--files", "30", folder=tmp_path)
    assert demo.wait() == 0, demo.err
    assert not [character for character in demo.out if not character.isprintable() and character != "\n"]
    assert demo.err == ""
    for part in (
        "jobs ended, ",
        "files of Python's standard library",
        "TimeoutError: slow_reading ran longer than its timeout of 0.3 s",
        "ValueError: could not convert string to float",
        "breaker of forecast: closed → open → half-open",
        f"rxjobs jobs list --dsn {shlex.quote(dsn)} --schema rxjobs_demo --state discarded",
    ):
        assert part in demo.out, part


def test_on_a_terminal_there_is_a_live_view(dsn: str):
    ours, theirs = pty.openpty()
    demo = subprocess.Popen(
        [*COMMAND, "--dsn", dsn, "--files", "30"],
        stdin=theirs, stdout=theirs, stderr=theirs, env=ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "130"},
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(ours, 65536):
            seen += part
    os.close(ours)
    assert demo.wait() == 0, seen.decode()
    assert b"\x1b[?25l" in seen, "the cursor was never hidden"
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l"), "the cursor was left hidden"
    assert b"queue files" in seen
    assert b"of Python's standard library" in seen


def test_sigterm_ends_the_demo_and_all_that_it_started(dsn: str, tmp_path: Path):
    demo = Started("--dsn", dsn, folder=tmp_path)
    deadline = time.monotonic() + 60
    while "in flight" not in demo.out or len(demo.family) < 2:
        assert time.monotonic() < deadline, demo.err
        demo.look()
        time.sleep(0.1)
    demo.process.send_signal(signal.SIGTERM)
    assert demo.wait() == 143, demo.err
    assert not demo.left


def test_a_reader_that_goes_away_does_not_stop_the_demo(dsn: str):
    demo = subprocess.Popen(
        [*COMMAND, "--dsn", dsn, "--files", "5"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    )
    assert demo.stdout is not None
    assert demo.stdout.readline()
    demo.stdout.close()
    _, err = demo.communicate(timeout=60)
    assert (demo.returncode, err) == (0, b"")


def test_an_embedded_server_of_its_own_is_stopped(tmp_path: Path):
    with folder_for_a_server() as server:
        demo = Started("--dsn", f"embedded://{server}", "--files", "5", folder=tmp_path)
        assert demo.wait() == 0, demo.err
        assert f"--dsn embedded://{server} --schema rxjobs_demo" in demo.out
        assert (server / "data" / "PG_VERSION").exists()
        assert not (server / "data" / "postmaster.pid").exists()


def test_its_traces_reach_a_collector(dsn: str, tmp_path: Path):
    with Collector() as collector:
        demo = Started("--dsn", dsn, "--files", "5", "--otlp", collector.url, folder=tmp_path)
        assert demo.wait() == 0, demo.err
    spans = Counter(span.name for span in collector.spans())
    assert spans["process weather"] >= 20
    assert spans["enqueue weather"] + spans["enqueue files"] + spans["enqueue"] >= 1, spans


def test_a_collector_that_is_away_costs_the_demo_nothing_but_a_moment(dsn: str, tmp_path: Path):
    demo = Started("--dsn", dsn, "--files", "5", "--otlp", f"http://127.0.0.1:{find_free_port()}", folder=tmp_path)
    assert demo.wait() == 0, demo.err
    assert "files of Python's standard library" in demo.out


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path):
    demo = Started("--dsn", "postgresql://127.0.0.1:1/x", "--files", "1", "--json", folder=tmp_path)
    assert demo.wait() == 2
    assert demo.out == ""
    assert "rxjobs: no connection to postgresql://127.0.0.1:1/x" in demo.err.splitlines()[-1]
