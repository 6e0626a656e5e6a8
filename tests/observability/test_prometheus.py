"""The real Prometheus scrapes a real worker under load, and what dashboards and alerts ask for is there.

It takes a quarter of a minute: rates are taken over ten seconds, and some of what a node does it does every ten.
"""

from __future__ import annotations

import asyncio
import time

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.testing import fill
from tests.observability import prometheus
from tests.observability.places import ALERTS
from tests.observability.promql import parse
from tests.observability.test_expressions import filled_in, queries
from tests.servers import find_free_port
from tests.telemetry.worker import working

pytestmark = [pytest.mark.skipif(prometheus.is_missing(), reason=prometheus.MISSING), pytest.mark.timeout(300)]

SECONDS = 120.0

APP = """
import time
import rxjobs as rj

app = rj.App()


def soon(attempt, error):
    return 0.2


@app.job(name="tick", queue="clock", timeout=10)
async def tick() -> None:
    news = [send.new(n) for n in range(6)] + [later.options(delay=0.3).new(), twice.new(), twice.new()]
    news += [one.new() for one in (flaky, dead, *[bank] * 5, slow, count, unwanted, put_off, taken)]
    news += [write.new(n) for n in range(5)]
    await app.enqueue_many(news)


app.cron("* * * * * *", tick.new())


@app.job(name="send", queue="mail")
async def send(n: int) -> None: ...


@app.job(name="later", queue="mail")
async def later() -> None: ...


@app.job(name="twice", queue="mail", unique=rj.Unique())
async def twice() -> None: ...


@app.job(name="flaky", queue="text", backoff=soon, breaker=None)
async def flaky() -> None:
    if rj.current_job().attempt == 1:
        raise OSError("not yet")


@app.job(name="dead", queue="text", max_attempts=1, breaker=None)
async def dead() -> None:
    raise LookupError("gone")


@app.job(name="bank", queue="text", backoff=soon, max_attempts=3, breaker=rj.Breaker(fail_max=2, reset_timeout=0.5))
async def bank() -> None:
    if time.time() % 4 < 2:
        raise ConnectionError("away")


@app.job(name="slow", queue="text")
def slow() -> None:
    time.sleep(0.05)


@app.job(name="count", queue="text", executor=rj.in_processes(1))
def count() -> int:
    return sum(range(1000))


@app.job(name="unwanted", queue="mail")
async def unwanted() -> None: ...


@app.job(name="taken", queue="text")
async def taken() -> None:
    # as if another node had claimed it meanwhile
    async with app.store.database.transaction() as connection:
        await connection.execute("UPDATE rxjobs.live_jobs SET attempt = 2 WHERE id = $1 AND attempt = 1", rj.current_job().id)


@app.job(name="put_off", queue="text")
async def put_off() -> None:
    if rj.current_job().scheduled_at.timestamp() % 2 < 1:
        raise rj.Snooze(0.3)


@app.job(name="write", queue="bulk")
async def write(n: int) -> None: ...


async def look_up(job):
    return {"n": 1}


async def write_all(jobs):
    return None


def broken(event):
    raise RuntimeError("this listener is broken")


app.events.subscribe(broken)


for queue in ("clock", "text"):
    app.pipeline(app.source(queue, max_demand=20).pipe(rj.execute(concurrency=10), rj.ack()), queue)
app.pipeline(
    app.source("mail", max_demand=20).pipe(
        rj.filter(lambda job: job.type != "unwanted", name="wanted"), rj.enrich(look_up), rj.execute(concurrency=10), rj.ack()
    ),
    "mail",
)
app.pipeline(app.source("bulk", max_demand=20).pipe(rj.buffer(3, 0.2), rj.execute_batch(write_all), rj.ack()), "bulk")
"""

UNTOLD = {
    "rxjobs_queue_stalled_total": "that a queue stands still is a fault of ours",
    "traces_span_metrics_calls_total": "made by the collector",
    "traces_span_metrics_duration_seconds_bucket": "made by the collector",
    "process_cpu_seconds_total": "made by the collector",
}
"""Metrics that a worker alone does not tell, and why."""
UNANSWERED: dict[str, str] = {}
"""Queries that stay without an answer, and why."""


async def prepare(dsn):
    """What a worker finds: a limited queue, old jobs, which are pruned, and a node that is gone with a job, which is rescued."""
    async with rj.App(dsn, migrate=True) as app:
        app.source("bulk", max_demand=1)
        await app.queues.limit("bulk", concurrency=1000)
        await app.queues.rate("bulk", 1000, per=1, burst=1000)
    connection = await asyncpg.connect(dsn)
    await fill(connection, "send", 5, args_sql="jsonb_build_object('n', n)", state="completed")
    await fill(connection, "send", 1, args_sql="jsonb_build_object('n', n)")
    await connection.execute("UPDATE rxjobs.finished_jobs SET finished_at = now() - interval '1 day'")
    await connection.execute(
        "WITH gone AS (INSERT INTO rxjobs.nodes (id, label, pid, expires_at) "
        "VALUES (gen_random_uuid(), 'gone', 1, now() - interval '1 minute') RETURNING id) "
        "UPDATE rxjobs.live_jobs SET state = 'executing', attempt = 1, attempted_at = now(), node = (SELECT id FROM gone), "
        "queue = 'mail'"
    )
    await connection.close()


async def depose(dsn):
    """Have the leader lose its place for a moment."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "UPDATE rxjobs.leaders SET node = gen_random_uuid(), term = term + 1, expires_at = now() + interval '0.5 s'"
    )
    await connection.close()


@pytest.fixture
def scraped(dsn, tmp_path):
    """A Prometheus that scrapes a worker, and is full of what that tells."""
    asyncio.run(prepare(dsn))
    port = find_free_port()
    environ = {
        "OTEL_TRACES_EXPORTER": "console",  # so that there are traces for exemplars to name
        "RXJOBS_KEEP": "3600",
        "RXJOBS_LEASE_SECONDS": "3",
        "RXJOBS_LEADER_SECONDS": "2",
    }
    (tmp_path / "prometheus").mkdir()
    with (
        working(tmp_path, APP, dsn, f"--metrics-port={port}", "--log-level=error", **environ) as worker,
        prometheus.running(tmp_path / "prometheus", f"localhost:{port}") as server,
    ):
        yield server, worker
        assert worker.process.poll() is None, worker.log


def test_every_dashboard_and_alert_is_answered_by_what_a_worker_tells(scraped, dsn):
    server, worker = scraped
    unanswered = {name: asked for name, asked in queries().items() if not is_untold(asked)}
    for alert in ALERTS:  # that it fires is another matter: all that it looks at is there
        for number, selector in enumerate(selectors(alert["expr"])):
            if not is_untold(selector):
                unanswered[f"alert {alert['alert']} {number}"] = selector
    assert len(unanswered) > 80
    deadline = time.monotonic() + SECONDS
    while unanswered.keys() - UNANSWERED.keys() and time.monotonic() < deadline:
        assert worker.process.poll() is None, worker.log
        unanswered = {name: asked for name, asked in unanswered.items() if not server.ask(filled_in(asked))}
        if "overview: Leader changes" in unanswered and len(unanswered) < 10:
            asyncio.run(depose(dsn))
            time.sleep(2)
        time.sleep(0.5)
    assert unanswered.keys() == UNANSWERED.keys(), unanswered

    now = str(time.time())
    exemplars = server.get(
        "query_exemplars", query="messaging_process_duration_seconds_bucket", start=str(float(now) - 3600), end=now
    )
    assert {len(one["labels"]["trace_id"]) for series in exemplars for one in series["exemplars"]} == {32}


def is_untold(asked):
    return any(metric in UNTOLD for metric, _ in parse(filled_in(asked)).selectors)


def selectors(expression):
    """The selectors of an expression, each as one of its own."""
    for metric, matchers in parse(expression).selectors:
        yield metric + "{" + ",".join(f'{label}{sign}"{value}"' for label, sign, value in matchers) + "}"
