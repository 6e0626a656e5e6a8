"""Take the screenshots of docs/telemetry.md: a real trace in Phoenix, and graphs of a real Prometheus.

python -m observability.screenshots            (takes three minutes, and says what it needs where something is not there)

A worker runs observability/story.py on an embedded PostgreSQL, and sends its traces to Phoenix by OTLP;
Prometheus fetches its metrics.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

import rxjobs as rj
from observability import story
from rxjobs.store.served import served
from rxjobs.telemetry.sdk import configure

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
MOST_BYTES = 200_000
START_SECONDS, SEEN_SECONDS = 300.0, 120.0
LOAD_SECONDS = 90
PROJECT = "rxjobs"
NEEDS = {
    "phoenix": "python -m venv .phoenix && .phoenix/bin/pip install arize-phoenix    (650 MB; or PHOENIX=/path/to/bin/phoenix)",
    "prometheus": "apt-get install --no-install-recommends prometheus",
    "chromium": "apt-get install --no-install-recommends chromium",
}
"""What is needed, and how to get it."""
GRAPHS = {
    "attempts.png": "sum by (rxjobs_job_kind, rxjobs_job_outcome) (rate(rxjobs_job_attempts_total[15s]))",
    "stages.png": "histogram_quantile(0.95, sum by (le, rxjobs_stage_name) (rate(rxjobs_stage_duration_seconds_bucket[15s])))",
}
"""What Prometheus is asked for each image."""
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--virtual-time-budget=20000",
)  # fmt: skip


def main() -> int:
    """Take them all; gives the exit code."""
    programs = {name: _found(name) for name in NEEDS}
    missing = [name for name, path in programs.items() if path is None]
    for name in missing:
        print(f"{name} is not installed: {NEEDS[name]}", file=sys.stderr)
    if missing:
        return 2
    IMAGES.mkdir(exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="rxjobs-screenshots-", ignore_cleanup_errors=True)))
        folder.chmod(0o755)  # as root, PostgreSQL has an account of its own, which is to reach its folder in there
        asyncio.run(_take({name: str(path) for name, path in programs.items()}, folder, stack))
    return 0


async def _take(programs: Mapping[str, str], folder: Path, stack: ExitStack) -> None:
    async with served(f"embedded://{folder / 'postgres'}") as dsn:
        await rj.App(dsn).migrate()
        phoenix = stack.enter_context(_phoenix(programs["phoenix"], folder))
        worker = stack.enter_context(_worker(dsn, phoenix, folder))
        prometheus = stack.enter_context(_prometheus(programs["prometheus"], worker, folder))
        trace_id = await _tell(dsn, phoenix)
        told_at = time.gmtime()
        shots = {"trace.png": await _seen(phoenix, trace_id)}
        for name, expression in GRAPHS.items():
            shots[name] = f"{prometheus}/classic/graph?{_graph(expression, told_at)}"
        for name, url in shots.items():
            _shoot(programs["chromium"], url, IMAGES / name, folder)


def _found(name: str) -> str | None:
    own = os.environ.get(name.upper()) or str(ROOT / f".{name}" / "bin" / name)
    return own if os.access(own, os.X_OK) else shutil.which(name)


@contextmanager
def _started(command: Sequence[str], folder: Path, ready: str, **environ: str) -> Iterator[None]:
    """A program, from when this page of it can be read; ended by its own process id, and no other's."""
    without = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "RXJOBS_"))}
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, env={**without, **environ}, stdout=file, stderr=file)
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _answers(ready):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{command[0]} did not start:\n{log.read_text('utf-8')[-2000:]}")
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def _phoenix(program: str, folder: Path) -> Iterator[str]:
    port = _free_port()
    environ = {
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(_free_port()),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }
    url = f"http://127.0.0.1:{port}"
    with _started([program, "serve"], folder, url, **environ):
        yield url


@contextmanager
def _worker(dsn: str, phoenix: str, folder: Path) -> Iterator[str]:
    port = _free_port()
    command = [sys.executable, "-m", "rxjobs", "run", "observability.story:app", f"--metrics-port={port}", "--log-level=error"]
    with _started(command, folder, f"http://127.0.0.1:{port}/metrics", RXJOBS_DSN=dsn, RXJOBS_POLL_SECONDS="0.2", **_otlp(phoenix)):
        yield f"127.0.0.1:{port}"


@contextmanager
def _prometheus(program: str, target: str, folder: Path) -> Iterator[str]:
    url, config = f"127.0.0.1:{_free_port()}", folder / "prometheus.json"
    scrape = {"job_name": "rxjobs", "static_configs": [{"targets": [target]}]}
    config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]}), "utf-8")
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'series'}", f"--web.listen-address={url}"]
    with _started(command, folder, f"http://{url}/-/ready"):
        yield f"http://{url}"


def _otlp(phoenix: str) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{phoenix}/v1/traces",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={PROJECT}",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }


async def _tell(dsn: str, phoenix: str) -> str:
    """Have orders come for a while, most of which nobody traces, and in the end the one that is looked at; gives its trace's id."""
    os.environ.update(_otlp(phoenix))
    stop = configure("shop")
    app = rj.App(dsn)
    app.definitions.update(story.app.definitions)
    unseen = NonRecordingSpan(SpanContext(1, 1, False, TraceFlags(TraceFlags.DEFAULT)))
    async with app:
        with trace.use_span(unseen):
            for second in range(LOAD_SECONDS):
                for order in range(5 + second % 30 // 3):
                    await app.enqueue(story.charge.new(order, fails=random.random() < 0.15))  # noqa: S311 - a story
                await asyncio.sleep(1)
        with trace.get_tracer("shop").start_as_current_span("POST /orders") as span:
            await app.enqueue(story.charge.new(4711, fails=True))
            await asyncio.sleep(0.02)
        await asyncio.sleep(3)
    stop()
    return trace.format_trace_id(span.get_span_context().trace_id)


async def _seen(phoenix: str, trace_id: str) -> str:
    """The page of the trace once all of it is there, with the attempt that failed: the span of the dead letter is the last."""
    deadline = time.monotonic() + SEEN_SECONDS
    while time.monotonic() < deadline:
        for project in [one["id"] for one in _read(f"{phoenix}/v1/projects")["data"] if one["name"] == PROJECT]:
            spans = _read(f"{phoenix}/v1/projects/{project}/spans?{urlencode({'trace_id': trace_id, 'limit': 100})}")["data"]
            names = {span["name"]: span for span in spans}
            if "discard mail" in names:
                failed = next(span for span in spans if span["name"] == "process payments" and span["status_code"] == "ERROR")
                print(f"{len(spans)} spans in the trace: {', '.join(sorted(names))}")
                return f"{phoenix}/projects/{project}/traces/{trace_id}?{urlencode({'selectedSpanNodeId': failed['id']})}"
        await asyncio.sleep(0.5)
    raise SystemExit(f"Phoenix has not got the whole trace {trace_id} within {SEEN_SECONDS:g} s")


def _graph(expression: str, until: time.struct_time) -> str:
    options: dict[str, str | int] = {"expr": expression, "tab": 0, "range_input": "2m", "step_input": 1}
    return urlencode(
        {f"g0.{name}": value for name, value in {**options, "end_input": time.strftime("%Y-%m-%d %H:%M:%S", until)}.items()}
    )


def _shoot(chromium: str, url: str, path: Path, folder: Path) -> None:
    """Take a picture, less high where it would be too large."""
    height = 900 if "graph?" in url else 1150
    while True:
        profile = mkdtemp(prefix="profile-", dir=folder)
        command = [chromium, *FLAGS, f"--user-data-dir={profile}", f"--window-size=1400,{height}", f"--screenshot={path}", url]
        subprocess.run(command, check=True, capture_output=True, timeout=START_SECONDS)
        size = path.stat().st_size
        if size <= MOST_BYTES:
            break
        height -= 50
    print(f"{path.relative_to(ROOT)}: {size // 1000} kB")


def _read(url: str) -> Any:
    with urlopen(url, timeout=30) as answer:  # noqa: S310 - a server of ours
        return json.load(answer)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as answer:  # noqa: S310 - a server of ours
            return bool(answer.status == 200)
    except (URLError, TimeoutError, ConnectionError):
        return False


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
