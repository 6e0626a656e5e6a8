"""What tests look at: jobs that ran to their end, spans by name, the points of a metric."""

from __future__ import annotations

import asyncio
import time

DONE = ("completed", "discarded", "cancelled")
SECONDS = 60.0


async def run_until_done(app, count):
    """Run the app until so many jobs have come to their end."""
    async with app.running():
        await until_done(app, count)


async def until_done(app, count):
    """Wait until so many jobs have come to their end."""

    async def is_done():
        return sum(jobs for state, jobs in (await app.jobs.count()).items() if state in DONE) >= count

    await until_async(is_done)


async def until_async(holds):
    """Wait until an awaited fact is true."""
    deadline = time.monotonic() + SECONDS
    while not await holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.02)


async def until(holds):
    """Wait until a fact is true."""

    async def look():
        return holds()

    await until_async(look)


def named(spans, prefix):
    """The spans whose names begin so, in the order in which they began."""
    found = [span for span in spans.get_finished_spans() if span.name.startswith(prefix)]
    return sorted(found, key=lambda span: span.start_time)


def points(reader, name):
    """The points of a metric, by their attributes (as a frozenset of pairs); none where it was not told."""
    data = reader.get_metrics_data()
    found = {}
    for resource in data.resource_metrics if data else []:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if metric.name == name:
                    found |= {frozenset(point.attributes.items()): point for point in metric.data.data_points}
    return found


def by(**attributes):
    """A key of `points`: dots are written as two underscores."""
    return frozenset((name.replace("__", "."), value) for name, value in attributes.items())
