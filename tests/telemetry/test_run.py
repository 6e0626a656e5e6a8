"""What `rxjobs run` makes of its options: JSON logs that name their job, metrics to fetch, and an identity for each process."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.cli import main
from rxjobs.testing import fill
from tests.servers import find_free_port
from tests.telemetry.collector import receiving
from tests.telemetry.worker import working

APP = """
import logging
import rxjobs as rj

app = rj.App()


@app.job(name="work", queue="told")
def work(n: int) -> None:
    logging.getLogger("shop").warning("hello %d", n)
"""


async def lay(dsn, jobs):
    await rj.App(dsn).migrate()
    connection = await asyncpg.connect(dsn)
    await fill(connection, "work", jobs, args_sql="jsonb_build_object('n', n)")
    await connection.execute("UPDATE rxjobs.live_jobs SET queue = 'told'")
    await connection.close()


def until(holds, worker):
    deadline = time.monotonic() + 60
    while not (found := holds()):
        assert worker.process.poll() is None, worker.log
        assert time.monotonic() < deadline, worker.log
        time.sleep(0.1)
    return found


def test_json_logs_name_the_job_that_they_come_from(dsn, tmp_path):
    asyncio.run(lay(dsn, 2))
    with working(tmp_path, APP, dsn, "--log-format=json") as worker:
        until(lambda: worker.log.count("hello") == 2, worker)
        worker.stop()
        lines = [json.loads(line) for line in worker.log.splitlines()]
    said = {line["message"]: line for line in lines if line["logger"] == "shop"}
    assert {message: (line["job_type"], line["queue"], line["attempt"]) for message, line in said.items()} == {
        f"hello {n}": ("work", "told", 1) for n in range(2)
    }
    assert len({line["job_id"] for line in said.values()}) == 2
    assert all("job_id" not in line for line in lines if line["logger"] != "shop")


def fetch(port):
    try:
        with urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def instances(page):
    return {line.split('instance="')[1].split('"')[0] for line in page.splitlines() if line.startswith("rxjobs_leader_status")}


def test_each_of_several_processes_has_metrics_of_its_own_though_they_share_a_label(dsn, tmp_path):
    asyncio.run(lay(dsn, 10))
    port = find_free_port()
    with receiving() as (endpoint, received):
        environ = {"RXJOBS_NODE": "till", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        with working(tmp_path, APP, dsn, "--processes=2", f"--metrics-port={port}", **environ) as worker:
            first = until(lambda: instances(fetch(port)), worker)
            second = until(lambda: instances(fetch(port + 1)), worker)
            until(lambda: len({one.get("service.instance.id") for one in received.resources}) == 2, worker)
            worker.stop()
    assert len(first | second) == 2
    assert {one["service.instance.id"] for one in received.resources} == first | second
    assert {one["rxjobs.node.label"] for one in received.resources} == {"till"}


def test_a_port_that_is_taken_is_told_in_one_line(dsn, tmp_path):
    asyncio.run(lay(dsn, 0))
    with receiving() as (endpoint, _):
        port = endpoint.rsplit(":", 1)[1]
        with working(tmp_path, APP, dsn, f"--metrics-port={port}", OTEL_EXPORTER_PROMETHEUS_HOST="127.0.0.1") as worker:
            assert worker.process.wait(60) == 2
        assert "--metrics-port: nothing can be served at 127.0.0.1" in worker.log.splitlines()[-1]


@pytest.mark.parametrize("port", ["0", "65536", "many"])
def test_a_port_that_is_none_is_refused(port, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["rxjobs", "run", "shop:app", f"--metrics-port={port}"])
    with pytest.raises(SystemExit) as refused:
        main()
    assert refused.value.code == 2
    assert "metrics-port" in capsys.readouterr().err


def test_an_app_has_the_id_of_its_process_when_it_runs_for_the_first_time_and_a_new_one_after(dsn):
    app = rj.App(dsn, migrate=True)
    before = app.id

    async def run():
        async with app.running(app.source("told").pipe(rj.ack())):
            return app.id

    first, second = asyncio.run(run()), asyncio.run(run())
    assert first == before
    assert second != first


CHILDREN = """
import rxjobs as rj
from opentelemetry import trace

app = rj.App()


@app.job(name="work", queue="told", executor=rj.in_processes(1))
def work(n: int) -> None:
    with trace.get_tracer("shop").start_as_current_span("inside"):
        print("worked", flush=True)
"""


def test_a_span_that_is_made_in_a_child_process_is_sent_when_the_child_ends(dsn, tmp_path):
    with receiving() as (endpoint, received):
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "600000",  # not before
            "RXJOBS_NODE": "till",
        }
        asyncio.run(lay(dsn, 1))
        with working(tmp_path, CHILDREN, dsn, **environ) as worker:
            until(lambda: "worked" in worker.log, worker)
            worker.stop()
    (inside,), (process,) = received.named("inside"), received.named("process told")
    assert (inside.trace_id, inside.parent_id) == (process.trace_id, process.span_id)
    assert (inside.resource["service.name"], inside.resource["rxjobs.node.label"]) == ("rxjobs", "till")
    assert inside.resource["service.instance.id"] == process.resource["service.instance.id"]
