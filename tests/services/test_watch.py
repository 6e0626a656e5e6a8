import asyncio
import threading
import time

import pytest

from rxjobs.event_stream import EventStream
from rxjobs.events import Event, JobStarted, LoopBlocked
from rxjobs.services.watch import LoopWatch
from rxjobs.testing import a_job, job_type
from tests.waiting import until

SECONDS = 0.3


@pytest.fixture
def events():
    return []


@pytest.fixture
async def watch(scheduler, events):
    watch = LoopWatch(scheduler, events.append, seconds=SECONDS)
    watch.start()
    yield watch
    await asyncio.to_thread(watch.stop)


async def test_a_loop_that_is_blocked_is_told_of_with_where_and_by_which_job_and_then_for_how_long(watch, events, caplog):
    async def blocks() -> None:
        time.sleep(4 * SECONDS)  # noqa: ASYNC251 - that is the point

    job = a_job(definition=job_type(blocks, name="blocks"))
    await asyncio.sleep(SECONDS)
    await job.definition.perform(job, None)
    # a machine with much else to do holds a loop up too
    event = await until(lambda: next((event for event in events if event.job == job.id), None))
    assert isinstance(event, LoopBlocked)
    assert event.seconds > 2 * SECONDS
    [told] = [message for message in caplog.messages if f"it is held up by job {job.id} (blocks)" in message]
    assert "has not run for" in told
    assert "time.sleep(4 * SECONDS)" in told


async def test_a_slow_listener_of_events_is_told_of_and_not_the_job_that_it_was_told_of(watch, events, caplog):
    """F49: it is called on the loop, and nobody can interrupt it there."""
    stream = EventStream()
    blocked = []

    def slow(event: Event) -> None:
        if isinstance(event, JobStarted) and not blocked:
            blocked.append(event)
            time.sleep(4 * SECONDS)

    stream.subscribe(slow)
    job = a_job(definition=job_type(lambda: None, name="told", events=stream))
    await asyncio.sleep(SECONDS)
    await job.definition.perform(job, None)
    await until(lambda: events)
    assert {event.job for event in events} == {None}
    [told] = [message for message in caplog.messages if "it is held up by a listener of app.events, told of job.start;" in message]
    assert "time.sleep(4 * SECONDS)" in told


async def test_what_is_no_job_of_ours_is_told_of_too(watch, events, caplog):
    await asyncio.sleep(SECONDS)
    time.sleep(2 * SECONDS)  # noqa: ASYNC251 - that is the point
    await until(lambda: "time.sleep(2 * SECONDS)" in caplog.text and events)
    assert {event.job for event in events} == {None}
    assert "no job on it does. A" not in caplog.text


async def test_a_loop_that_runs_is_not_told_of_and_a_watch_that_is_stopped_leaves_nothing(scheduler, events, caplog):
    watch = LoopWatch(scheduler, events.append, seconds=1.0)  # a machine with much else to do does not hold it up for so long
    watch.start()
    for _ in range(60):
        await asyncio.sleep(0.03)
    assert events == []
    assert not caplog.records
    await asyncio.to_thread(watch.stop)
    assert "rxjobs-watch" not in [thread.name for thread in threading.enumerate()]


async def test_how_late_the_loop_was_of_late_is_known(watch):
    await until(lambda: watch.delay is not None)
    assert watch.delay < 10
    time.sleep(2 * SECONDS)  # noqa: ASYNC251 - that is the point
    await until(lambda: watch.delay > SECONDS / 2)
