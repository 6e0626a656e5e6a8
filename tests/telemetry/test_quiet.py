"""Beside an instrumentation of asyncpg: what a node asks by itself begins no traces, and joins none."""

from __future__ import annotations

import functools
import importlib.util
from contextlib import AsyncExitStack

import asyncpg
import pytest
from opentelemetry.trace import SpanKind

import rxjobs as rj
from tests.telemetry.seen import named, until_async, until_done

METHODS = ("execute", "executemany", "fetch", "fetchrow", "fetchval")
INSTRUMENTED = importlib.util.find_spec("opentelemetry.instrumentation")
MISSING = "opentelemetry-instrumentation-asyncpg is not installed; its releases ask for older ones of the SDK than there are"


@pytest.fixture
def wrapped(monkeypatch, tracer):
    """As the instrumentation does it: a span around each call of a method of asyncpg's own class."""

    def around(method):
        @functools.wraps(method)
        async def call(self, query, *args, **kwargs):
            with tracer.start_as_current_span(query.split()[0], kind=SpanKind.CLIENT, attributes={"db.system": "postgresql"}):
                return await method(self, query, *args, **kwargs)

        return call

    for name in METHODS:
        monkeypatch.setattr(asyncpg.Connection, name, around(getattr(asyncpg.Connection, name)))


@pytest.fixture
def instrumented(tracer_provider):
    """The instrumentation itself."""
    from opentelemetry.instrumentation.asyncpg import AsyncPGInstrumentor

    instrumentor = AsyncPGInstrumentor()
    instrumentor.instrument(tracer_provider=tracer_provider, skip_dep_check=True)
    yield
    instrumentor.uninstrument()


@pytest.fixture
def tracer(tracer_provider):
    return tracer_provider.get_tracer("host")


@pytest.mark.parametrize(
    "instrumentation",
    ["wrapped", pytest.param("instrumented", marks=pytest.mark.skipif(INSTRUMENTED is None, reason=MISSING))],
)
async def test_what_a_node_asks_by_itself_begins_no_trace_and_joins_none(request, dsn, telemetry, spans, tracer, instrumentation):
    await rj.App(dsn).migrate()
    request.getfixturevalue(instrumentation)
    app = rj.App(dsn, telemetry=telemetry, poll_seconds=0.05, heartbeat_seconds=0.2, rescue_seconds=0.1)

    @app.job(name="work")
    async def work(): ...

    shows = "SELECT expires_at FROM rxjobs.nodes"
    async with app, AsyncExitStack() as stack:
        spans.clear()  # that it looks at the schema when it is opened, is its caller's
        with tracer.start_as_current_span("host"):
            await stack.enter_async_context(app.running())
        with tracer.start_as_current_span("test") as test:
            row = await work.enqueue()
            await until_done(app, 1)
            connection = await asyncpg.connect(dsn)
            renewed = {await connection.fetchval(shows)}

            async def has_gone_on():
                renewed.add(await connection.fetchval(shows))
                return len(renewed) > 4  # the lease, and meanwhile all else a node asks again and again

            await until_async(has_gone_on)
            await connection.close()
        told = [span for span in spans.get_finished_spans() if span.attributes.get("db.system")]
        # databases for tests to come are made ahead, and those of tests before are dropped, in a thread of this process
        told = [span for span in told if span.name not in ("CREATE", "DROP")]

    (enqueue,), (process,) = named(spans, "enqueue"), named(spans, "process")
    assert process.attributes["messaging.message.id"] == str(row.id)
    parents = {span.parent.span_id if span.parent else None for span in told}
    # what belongs to somebody's trace is told there, and nothing else
    assert parents == {test.get_span_context().span_id, enqueue.context.span_id}, [
        span.attributes.get("db.statement", span.name) for span in told if span.parent is None
    ]
