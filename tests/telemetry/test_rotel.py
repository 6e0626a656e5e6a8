"""A foreign collector takes what a worker sends, by gRPC and by HTTP, and reads kinds, links and resource as they were meant."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import pytest

from tests.servers import find_free_port
from tests.telemetry.seen import until
from tests.telemetry.worker import working

found = find_spec("rotel")
ROTEL = "" if found is None or found.origin is None else str(Path(found.origin).with_name("rotel-agent"))

pytestmark = pytest.mark.skipif(
    not os.access(ROTEL, os.X_OK), reason="rotel, a collector in a wheel, is not installed: pip install rotel==0.0.1a15"
)

APP = """
import rxjobs as rj

app = rj.App()


@app.job(name="work", queue="told", max_attempts=2, backoff=lambda attempt, error: 0.05)
async def work() -> None:
    if rj.current_job().attempt == 1:
        raise OSError("not yet")
    await after.enqueue()


@app.job(name="after", queue="told")
async def after() -> None: ...
"""


@contextmanager
def collecting(folder):
    """The ports of a running collector, gRPC's and HTTP's, and the file that it writes down what it gets in."""
    grpc, http = find_free_port(), find_free_port()
    log = folder / "rotel.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [
                ROTEL, "start", "--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed",
                "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}", "--otlp-http-endpoint", f"127.0.0.1:{http}",
                "--pid-file", str(folder / "rotel.pid"),
            ],
            stdout=file, stderr=file,
        )  # fmt: skip
        try:
            yield {"grpc": grpc, "http/protobuf": http}, log
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
async def test_a_foreign_collector_reads_what_a_worker_sends(dsn, tmp_path, protocol):
    with collecting(tmp_path) as (ports, log):
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{ports[protocol]}", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
        with working(tmp_path, APP, dsn, **environ) as worker:
            connection = await asyncpg.connect(dsn)
            await _until_ready(connection, worker)
            await connection.execute("INSERT INTO rxjobs.live_jobs (type, queue, args) VALUES ('work', 'told', '{}')")
            while await connection.fetchval("SELECT count(*) FROM rxjobs.finished_jobs") < 2:
                assert worker.process.poll() is None, worker.log
                await asyncio.sleep(0.1)
            await connection.close()
            worker.stop()
            await until(lambda: log.read_text("utf-8").count("process told") >= 3)
    said = log.read_text("utf-8")
    assert "enqueue told" in said
    assert re.search(r"service\.name.{0,80}rxjobs", said, re.DOTALL)
    assert re.search(r"Kind.{0,30}(Consumer|5)", said, re.IGNORECASE | re.DOTALL)
    assert "previous_attempt" in said


async def _until_ready(connection, worker):
    deadline = time.monotonic() + 60
    while await connection.fetchval("SELECT to_regclass('rxjobs.live_jobs')") is None:
        assert worker.process.poll() is None, worker.log
        assert time.monotonic() < deadline, worker.log
        await asyncio.sleep(0.1)
