"""The SDK of a process of our own: what reaches a collector, and what one that is away may cost."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from rxjobs.errors import InvalidOption
from rxjobs.telemetry.sdk import configure
from tests.telemetry.collector import absent, receiving, silent

START = """
import asyncio, logging, sys, threading, time
began = time.monotonic()
import rxjobs as rj
from opentelemetry import metrics, trace
from rxjobs.testing.jobs import a_job
from rxjobs.telemetry.sdk import configure

"""
RUN = """
logging.basicConfig(level=logging.INFO)
shutdown = configure(service_name="service", instance="node 7")
app = rj.App()

@app.job(name="work")
async def work(n):
    logging.getLogger("user").info("job %d", n)

async def run(jobs, seconds=0.0):
    for n in range(jobs):
        await work.perform(a_job(definition=work, args={"n": n}), None)
    await asyncio.sleep(seconds)

"""
END = """
ending = time.monotonic()
shutdown()
print("shutdown", time.monotonic() - ending)
assert all(thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())
"""


def run(code, **environ):
    """Run a program; gives its output, its log, and the seconds it took to end after its own last line."""
    without = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "RXJOBS_"))}
    program = START + code + "\nprint('end', flush=True)\nsys.stdout.close()"
    command = [sys.executable, "-W", "error", "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env={**without, **environ}, stdout=pipe, stderr=pipe, text=True) as ran:
        try:
            output = ran.stdout.read()
            said = time.monotonic()
            log = ran.stderr.read()
            assert ran.wait(timeout=60) == 0, log
        finally:
            ran.kill()
    assert output.endswith("end\n"), log
    return output, log, time.monotonic() - said


def test_what_a_job_does_reaches_the_collector_with_the_resource_of_the_process():
    with receiving() as (endpoint, received):
        run(
            RUN + "asyncio.run(run(3))" + END,
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
            OTEL_LOGS_EXPORTER="otlp",
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test",
        )
    assert received.spans == ["process default"] * 3
    assert {"messaging.process.duration", "rxjobs.job.attempts", "rxjobs.job.active"} <= received.metrics
    logged = {body: trace_id for body, trace_id in received.logs if body.startswith("job")}
    assert logged.keys() == {"job 0", "job 1", "job 2"}
    assert all(len(trace_id) == 32 and int(trace_id, 16) for trace_id in logged.values())
    for resource in received.resources:
        assert resource["service.name"] == "service"
        assert resource["service.instance.id"] == "node 7"
        assert resource["deployment.environment.name"] == "test"
        # as OpenTelemetry#5364: a command line may hold a password
        assert not [name for name in resource if name.startswith("process.")]


def test_the_variables_win_over_what_the_process_says_of_itself():
    with receiving() as (endpoint, received):
        run(
            RUN + "asyncio.run(run(1))" + END,
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
            OTEL_SERVICE_NAME="mine",
            OTEL_RESOURCE_ATTRIBUTES="service.instance.id=8",
        )
    assert {(one["service.name"], one["service.instance.id"]) for one in received.resources} == {("mine", "8")}
    assert received.logs == []


def test_one_signal_can_be_exported_alone_and_sampled():
    with receiving() as (endpoint, received):
        run(
            RUN + "asyncio.run(run(20))" + END,
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{endpoint}/v1/traces",
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
            OTEL_TRACES_SAMPLER="parentbased_traceidratio",
            OTEL_TRACES_SAMPLER_ARG="0.0",
        )
        run(
            RUN + "asyncio.run(run(20))" + END,
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
            OTEL_TRACES_EXPORTER="none",
        )
    assert received.spans == []
    assert "rxjobs.job.attempts" in received.metrics


NOTHING_SET = (
    RUN
    + """
assert type(trace.get_tracer_provider()).__name__ == "ProxyTracerProvider"
assert "Proxy" in type(metrics.get_meter_provider()).__name__
assert not [thread.name for thread in threading.enumerate() if "Otel" in thread.name]
assert not logging.getLogger("opentelemetry.sdk._shared_internal").filters[1:]
"""
    + END
)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_SERVICE_NAME": "only a name"},
    ],
)
def test_nothing_is_set_up_that_was_not_asked_for(environ):
    run(NOTHING_SET, **environ)


def test_what_the_host_has_set_is_left_alone():
    host = """
from opentelemetry.sdk.trace import TracerProvider
host = TracerProvider()
trace.set_tracer_provider(host)
"""
    with receiving() as (endpoint, received):
        _, log, _ = run(
            host + RUN + "asyncio.run(run(2))\nassert trace.get_tracer_provider() is host\n" + END,
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
        )
    assert received.spans == []
    assert "rxjobs.job.attempts" in received.metrics
    assert "Overriding" not in log


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize(("collector", "lines"), [(absent, 1), (silent, 0)], ids=["refused", "black hole"])
def test_a_dead_collector_delays_the_exit_by_two_seconds_and_says_so_once_a_minute(collector, lines, protocol):
    jobs = """
asyncio.run(run(20))
time.sleep(1.0)
asyncio.run(run(20))
"""
    with collector() as endpoint:
        began = time.monotonic()
        output, log, after = run(
            RUN + jobs + END,
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            OTEL_LOGS_EXPORTER="otlp",
            OTEL_BSP_SCHEDULE_DELAY="100",
            OTEL_METRIC_EXPORT_INTERVAL="200",
        )
        took = time.monotonic() - began
    (shutdown,) = [float(line.split()[1]) for line in output.splitlines() if line.startswith("shutdown")]
    # the machine may be busy; an exporter that is waited for takes ten seconds for each of spans, metrics and logs
    assert shutdown < 2 + 5
    assert after < 5
    assert took < 60
    assert "Traceback" not in log
    assert "could not be exported within 1 s" in log
    told = [line for line in log.splitlines() if ":opentelemetry" in line]
    assert len(told) == lines, log


def test_jobs_do_not_wait_for_a_black_hole():
    timed = """
async def timed():
    await run(200)
    before = time.monotonic()
    await run(2000)
    print("jobs", time.monotonic() - before)

asyncio.run(timed())
"""
    with silent() as endpoint:
        output, _, _ = run(
            timed_run(timed),
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
            OTEL_BSP_SCHEDULE_DELAY="50",
        )
    (seconds,) = [float(line.split()[1]) for line in output.splitlines() if line.startswith("jobs")]
    assert seconds < 5


def timed_run(timed):
    return RUN.replace("level=logging.INFO", "level=logging.WARNING") + timed + END


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkim"}, "OTEL_TRACES_EXPORTER names 'zipkim'"),
        ({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "not 'http/json'"),
    ],
)
def test_an_exporter_that_is_not_there_is_refused(environ, says):
    with pytest.raises(InvalidOption, match=says):
        configure(environ=environ)


def test_the_protocol_is_http_but_on_the_port_of_grpc():
    code = """
import os
from rxjobs.telemetry import sdk
for endpoint in sys.argv[1:] or ["http://c:4317", "c:4317", "http://c:4318", "https://c/otlp"]:
    print(sdk._exporters("traces", {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}))
"""
    output, _, _ = run(code)
    assert output.splitlines()[:4] == ["['otlp_proto_grpc']"] * 2 + ["['otlp_proto_http']"] * 2
