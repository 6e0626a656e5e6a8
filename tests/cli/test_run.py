from __future__ import annotations

import json
import signal

import pytest

from tests.cli.conftest import hurry, until


def enqueue(rxjobs, count=1):
    for number in range(count):
        assert rxjobs("enqueue", "wait", "--app", "shop:app", f"number={number}").code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_drains_and_a_job_in_flight_completes(rxjobs, number):
    enqueue(rxjobs)
    assert rxjobs("enqueue", "send", "--app", "shop:app", "user_id=7", "locale=de").code == 0
    process = rxjobs.start("run", "shop:app")
    until(lambda: len(rxjobs.lines("notes")) == 2)
    process.send_signal(number)
    until(lambda: number.name in rxjobs.read("stderr"))
    rxjobs.write("go", "")
    assert process.wait(60) == 0
    assert rxjobs.states() == {1: "completed", 2: "completed"}
    assert "sent 7 de" in rxjobs.read("notes")


def test_ctrl_c_drains_too_and_the_log_can_be_json(rxjobs):
    enqueue(rxjobs)
    process = rxjobs.start("run", "shop:app", "--json", "--log-level", "info")
    until(lambda: "began" in rxjobs.read("notes"))
    process.send_signal(signal.SIGINT)
    until(lambda: "SIGINT" in rxjobs.read("stderr"))
    rxjobs.write("go", "")
    assert process.wait(60) == 0
    assert rxjobs.states() == {1: "completed"}
    lines = [json.loads(line) for line in rxjobs.read("stderr").splitlines()]
    assert {"at", "level", "logger", "message"} <= set(lines[0])
    said = [line["level"] for line in lines if line["logger"] != "rxjobs.lead"]
    assert said == ["info", "warning", "info"]


def test_a_second_signal_exits_at_once(rxjobs):
    enqueue(rxjobs)
    process = rxjobs.start("run", "shop:app")
    until(lambda: "began" in rxjobs.read("notes"))
    process.send_signal(signal.SIGTERM)
    until(lambda: "SIGTERM" in rxjobs.read("stderr"))
    assert hurry(process, signal.SIGTERM) == 128 + signal.SIGTERM
    assert rxjobs.states() == {1: "executing"}


def test_a_signal_before_anything_runs_ends_it_in_order(rxjobs):
    rxjobs.write("late.py", "import time\nopen('notes', 'w').write('importing')\ntime.sleep(600)\n")
    process = rxjobs.start("run", "late:app")
    until(lambda: rxjobs.read("notes"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert rxjobs.read("stderr") == ""


def test_only_the_named_queues_run_with_that_concurrency(rxjobs):
    enqueue(rxjobs, 3)
    assert rxjobs("enqueue", "send", "--app", "shop:app", "user_id=7").code == 0
    process = rxjobs.start("run", "shop:app", "--queue", "slow=2", "--dsn", rxjobs.dsn, environment={"RXJOBS_DSN": "embedded"})
    until(lambda: rxjobs.read("notes").count("began") == 2)
    # twice the concurrency is demanded
    until(lambda: list(rxjobs.states().values()) == ["executing"] * 3 + ["available"])
    rxjobs.write("go", "")
    until(lambda: list(rxjobs.states().values()) == ["completed"] * 3 + ["available"])
    process.terminate()
    assert process.wait(60) == 0
    assert rxjobs.lines("notes")[:2] == [f"began {process.pid}"] * 2


def test_a_pipeline_that_breaks_too_often_exits_with_1(rxjobs):
    rxjobs.write(
        "broken.py",
        "import reactivex as rx\nimport rxjobs as rj\n"
        "app = rj.App(max_restarts=0)\napp.pipeline(rx.throw(OSError('gone')), 'pipe')\n",
    )
    process = rxjobs.start("run", "broken:app")
    assert process.wait(60) == 1
    assert "pipeline pipe broke" in rxjobs.read("stderr")
    assert "gone" in rxjobs.read("stderr")


@pytest.mark.parametrize("how", ["signal", "mistake"])
def test_telemetry_is_ended_whatever_ends_the_run(rxjobs, how):
    rxjobs.write(
        "told.py",
        "import shop\nfrom opentelemetry.sdk.trace.export import ConsoleSpanExporter\n"
        "ConsoleSpanExporter.shutdown = lambda self: shop.note('shut down')\napp = shop.app\n",
    )  # fmt: skip
    schema = "rxjobs" if how == "signal" else "absent"
    process = rxjobs.start("run", "told:app", "--schema", schema, environment={"OTEL_TRACES_EXPORTER": "console"})
    if how == "signal":
        until(lambda: "runs" in rxjobs.read("stderr"))
        process.terminate()
    assert process.wait(60) == (0 if how == "signal" else 2)
    assert rxjobs.read("notes") == "shut down\n"
