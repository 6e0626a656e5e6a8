"""A look at what claims that begin at their marks pass by."""

from datetime import UTC, datetime, timedelta

import pytest

from rxjobs.store.store import PRIORITIES
from tests.store.ground import a_claimed_row, a_row

EARLY = datetime(2020, 1, 1, tzinfo=UTC)
MARKS = (EARLY,) * PRIORITIES, (1_000,) * PRIORITIES


async def is_ready(store, queue="default", types=("work",), tags=(), args="{}", marks=MARKS):
    found, seconds = await store.ready_behind(queue, types, tags, args, marks)
    assert 0 < seconds < 5
    return found


@pytest.mark.parametrize("priority", [0, 5, 9])
async def test_a_job_before_the_mark_of_its_priority_is_seen(store, connection, priority):
    assert not await is_ready(store)
    await a_row(connection, priority=priority, scheduled_at=EARLY - timedelta(microseconds=1))
    assert await is_ready(store)


async def test_jobs_at_the_mark_and_after_it_are_not_behind_it(store, connection):
    await a_row(connection, id=1_000, scheduled_at=EARLY)
    await a_row(connection, scheduled_at=EARLY + timedelta(microseconds=1))
    assert not await is_ready(store)
    await a_row(connection, id=999, scheduled_at=EARLY)
    assert await is_ready(store)


async def test_only_what_would_be_claimed_counts(store, connection, node):
    old = {"scheduled_at": EARLY - timedelta(days=1)}
    await a_claimed_row(connection, node, **old)
    for other in ({"state": "scheduled"}, {"queue": "other"}, {"type": "unknown"}):
        await a_row(connection, **old, **other)
    assert not await is_ready(store)
    await a_row(connection, tags=["a"], args='{"n": 1}', **old)
    assert await is_ready(store)
    assert not await is_ready(store, tags=["a", "b"])
    assert not await is_ready(store, args='{"n": 2}')
    assert await is_ready(store, tags=["a"], args='{"n": 1}')
