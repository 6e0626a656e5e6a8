"""What a worker finds itself in: clocks, logs that cannot be written, a collector that does not answer, Python's own switches."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from importlib import util
from itertools import pairwise
from pathlib import Path

import pytest

from tests.chaos import checker, faults
from tests.chaos.faults import put
from tests.chaos.ground import LEASE, ROOT
from tests.chaos.loaded import HANG, enqueuing_both, judge, lost_attempts, shown
from tests.chaos.stops import GRACE, ended, short_jobs, states, stop
from tests.telemetry.collector import silent
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

RXJOBS_RUN = ("-m", "rxjobs", "run", "tests.chaos.worker:app")
FAKETIME = next(
    iter([*Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), *Path("/usr/local/lib").glob("faketime/libfaketime.so.1")]), None
)


def skewed(by):
    """A worker whose clock is off, by libfaketime."""
    library = os.environ.get("LIBFAKETIME", FAKETIME)
    if library is None:
        pytest.skip("libfaketime is not installed, which gives one process a clock that is off (Debian's package libfaketime)")
    environ = {"LD_PRELOAD": str(library), "FAKETIME": by, "DONT_FAKE_MONOTONIC": "1"}
    told = subprocess.check_output([sys.executable, "-c", "import time; print(time.time())"], env={**os.environ, **environ})
    assert abs(float(told) - time.time() - float(by)) < 60
    return {"environ": environ}


@pytest.mark.parametrize(
    "clock",
    [
        pytest.param(lambda: {"command": ("-m", "tests.chaos.jumping")}, id="jumps"),
        pytest.param(lambda: skewed("+3600"), id="an hour ahead"),
        pytest.param(lambda: skewed("-3600"), id="an hour behind"),
    ],
)
async def test_no_due_time_lease_timeout_or_breaker_heeds_a_nodes_own_clock(ground, clock):
    """F17, F18, and row 89: the worker whose clock is wrong runs the default queue, another leads or follows."""
    how = clock()
    await ground.start(queues="default", **how)
    await ground.start(queues="healthy")
    timed = await put(ground, "timed", key="timed", seconds=60.0, max_attempts=1)
    fragile = await put(ground, "fragile", key="fragile", max_attempts=20)
    async with enqueuing_both(ground, rate=30.0):
        due = await ground.rows(
            "INSERT INTO rxjobs.live_jobs (type, state, scheduled_at, args) "
            """SELECT 'work', 'scheduled', now() + n * interval '0.1 second', '{"key": "due"}' FROM generate_series(1, 20) AS n """
            "RETURNING id"
        )
        await ground.running(*(row["id"] for row in due), seconds=HANG)
        await until(lambda: ground.value("SELECT state = 'completed' FROM rxjobs.jobs WHERE id = $1", fragile))
    await ground.drained()
    # a claim's now() may be a moment older than what it sees; these clocks are off by more than a minute
    early = "SELECT count(*) FROM rxjobs.jobs WHERE attempted_at < scheduled_at - interval '1 second'"
    assert await ground.value(early) == 0
    late = await ground.value(
        "SELECT max(extract(epoch FROM attempted_at - scheduled_at))::float8 FROM rxjobs.jobs WHERE id = ANY ($1::bigint[])",
        [row["id"] for row in due],
    )
    (cut,) = [one for one in ground.attempts if one.id == timed]
    assert cut.to - cut.since >= 0.95e9
    tries = [one.since for one in ground.attempts if one.id == fragile]
    gaps = [(after - before) / 1e9 for before, after in pairwise(tries)]
    assert min(gaps[2:]) >= 1.95  # open twice: before the fourth try, and before the fifth
    shown("with a clock that is wrong", latest=late, timeout=(cut.to - cut.since) / 1e9, open=max(gaps[2:]))
    assert late < HANG
    assert await lost_attempts(ground) == 0
    # its own end is seen by the others when its lease is over, and no earlier
    await ground.start(queues="default", **how)
    last = await put(ground, "work", key="last", seconds=2.0)
    await ground.running(last)
    (holder,) = {line.pid for line in ground.lines if line.id == last}
    ground.kill(next(worker for worker in ground.alive if worker.pid == holder))
    await judge(ground)
    (took,) = checker.recovery(ground.attempts, ground.died)
    shown("rescued", after=took)
    assert took >= LEASE / 2


READERS = ("a reader that leaves after a line", "a full disk", "a handler that raises")


@pytest.mark.parametrize("reader", READERS)
async def test_a_log_that_cannot_be_written_stops_no_work(ground, random, reader):
    """F50, row 37: `rxjobs run … | head -1`, a log on a full disk, a handler of the user's that raises."""
    reading, writing = os.pipe()
    full = os.open("/dev/full", os.O_WRONLY)
    how = {
        READERS[0]: {"command": RXJOBS_RUN, "out": writing},
        READERS[1]: {"command": RXJOBS_RUN, "out": full},
        READERS[2]: {"environ": {"HANDLER": "raises"}},
    }[reader]
    (worker,) = await ground.start(queues="default", **how)
    os.close(writing)
    if reader == READERS[0]:
        assert await asyncio.to_thread(os.read, reading, 1)
    os.close(reading)
    os.close(full)
    await short_jobs(ground, 100)
    for key in ("a", "b"):
        await put(ground, "flaky", key=key)
    # each is told of in the log
    await faults.terminate_backends(ground, random)
    await faults.poison_rows(ground, random)
    await faults.reset(ground, random, rounds=1)
    await ground.drained()
    await put(ground, "tidy", key="long", seconds=60.0)
    await until(lambda: ground.value("SELECT count(*) FROM rxjobs.live_jobs WHERE state = 'executing'"))
    worker.process.send_signal(15)
    ((code, took),) = await ended(ground, [worker])
    shown(reader, took=took)
    assert code == 0
    found = await states(ground)
    assert found["work", "completed", 1] >= 100
    assert found["flaky", "completed", 2] == 2
    assert found["tidy", "available", 0] == 1
    assert await ground.value("SELECT count(*) FROM rxjobs.live_jobs") == 1
    assert await lost_attempts(ground) == 0


async def test_a_collector_that_does_not_answer_holds_no_end_up(ground):
    """F48: a black hole takes spans, metrics and logs; the worker ends in its time."""
    with silent() as endpoint:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_LOGS_EXPORTER": "otlp", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
        (worker,) = await ground.start(command=RXJOBS_RUN, environ=environ)
        await short_jobs(ground, 500)
        long = await put(ground, "tidy", key="long", seconds=120.0)
        await ground.running(long)
        await ground.started(100, queue="default")
        (took,) = await stop(ground, [worker])
    shown("with a black hole for a collector", exit_beyond_the_grace=took - GRACE)
    assert took < GRACE + 15
    assert await ground.value("SELECT count(*) FROM rxjobs.live_jobs WHERE state <> 'available' OR attempt > 0") == 0


async def test_pythons_switches_change_nothing(ground, random):
    """F52, row 10: warnings are errors here always; asyncio's debug mode, salted hashes, and uvloop where it is installed."""
    await ground.start(environ={"PYTHONASYNCIODEBUG": "1", "PYTHONHASHSEED": "1"})
    await ground.start(environ={"PYTHONHASHSEED": "2", "PYTHONDEVMODE": "1"})
    async with enqueuing_both(ground):
        await ground.started(100)
        await faults.terminate_backends(ground, random)
        await ground.started(20)
    await judge(ground)
    assert await lost_attempts(ground) == 0
    shown("loops", uvloop=util.find_spec("uvloop") is not None)
    await stop(ground, ground.alive)
    for worker in ground.workers:
        assert not any(word in worker.log for word in ("Exception ignored", "Warning:", "never awaited", "never retrieved"))


async def test_forks_of_one_process_that_has_imported_everything_are_nodes_of_their_own(ground):
    """F52, row 51."""
    (parent,) = await ground.spawn(command=("-m", "tests.chaos.forked"))
    await until(lambda: ground.value("SELECT count(*) = 2 FROM rxjobs.nodes"))
    async with enqueuing_both(ground, rate=100.0):
        await ground.started(300)
    await ground.drained()
    begun = Counter(line.id for line in ground.lines if line.what == "start" and line.attempt == 1)
    assert set(begun.values()) == {1}
    assert len({line.pid for line in ground.lines}) == 2
    await stop(ground, [parent])


FORKED = """
import asyncio, os, sys
import rxjobs as rj

app = rj.App(sys.argv[1])

@app.job
async def nothing() -> None: ...

async def main():
    async with app:
        child = os.fork()
        if child == 0:
            try:
                asyncio.new_event_loop().run_until_complete(nothing.enqueue())
            except rj.errors.NotOpen as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        await nothing.enqueue()

asyncio.run(main())
"""


async def test_an_app_that_was_open_at_a_fork_says_so_in_the_child(ground):
    """Row 51: it must not share its parent's connections."""
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", FORKED, ground.dsn], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert ran.returncode == 0, ran.stderr
    assert "this app is open in another event loop" in ran.stdout
    assert await ground.value("SELECT count(*) FROM rxjobs.live_jobs") == 1
