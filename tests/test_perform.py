"""One job, start to finish."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rxjobs as rj
from rxjobs.event_stream import EventStream
from rxjobs.events import Event, JobDiscarded, JobFailed, JobStarted, JobStopped
from rxjobs.outcome import Finished
from rxjobs.testing import a_job, job_type
from tests.numbers import HANG
from tests.waiting import until


def heard(function: Callable[..., Any], **options: Any) -> tuple[Any, list[Event]]:
    """A job type, and the events its jobs make."""
    stream, events = EventStream(), list[Event]()
    stream.subscribe(events.append)
    return job_type(function, events=stream, **options), events


async def perform(definition: Any, **fields: Any) -> Finished:
    return await definition.perform(a_job(definition=definition, **{"attempt": 1, **fields}), None)


async def test_a_job_that_ends_well_makes_two_events():
    async def work() -> str:
        await asyncio.sleep(0.01)
        return "done"

    definition, events = heard(work)
    finished = await perform(definition)
    assert finished.outcome == rj.Complete("done")
    began, ended = events
    assert isinstance(began, JobStarted)
    assert isinstance(ended, JobStopped)
    assert (ended.job, ended.outcome) == (finished.job, finished.outcome)
    assert 0.01 <= ended.duration / 1e9 < HANG


async def test_a_failure_makes_an_event_with_the_error_and_how_long_it_took():
    async def work() -> None:
        await asyncio.sleep(0.01)
        raise ValueError("no")

    definition, events = heard(work)
    finished = await perform(definition)
    _, ended = events
    assert isinstance(ended, JobFailed)
    assert ended.error is finished.outcome.failure
    assert ended.error.type == "ValueError"
    assert 0.01 <= ended.error.duration < HANG


async def test_a_last_failure_is_also_a_discard():
    def work() -> None:
        raise ValueError("no")

    definition, events = heard(work)
    finished = await perform(definition, attempt=20)
    assert isinstance(finished.outcome, rj.Discard)
    assert [type(event) for event in events] == [JobStarted, JobFailed, JobDiscarded]


@pytest.mark.parametrize("outcome", [rj.Snooze(5), rj.Cancel("no"), rj.Release(1)], ids=lambda one: type(one).__name__)
async def test_an_outcome_that_is_no_failure_is_a_stop(outcome):
    definition, events = heard(lambda: outcome, name="work")
    assert (await perform(definition)).outcome == outcome
    assert [type(event) for event in events] == [JobStarted, JobStopped]


async def test_one_outcome_that_ends_many_jobs_is_not_changed_by_any():
    again = rj.Retry(delay=5, reason="later")

    async def work(seconds: float) -> rj.Outcome:
        await asyncio.sleep(seconds)
        return again

    definition = job_type(work)
    slow, fast = await asyncio.gather(perform(definition, args={"seconds": 0.2}), perform(definition, args={"seconds": 0.0}))
    assert again.failure is None
    assert slow.outcome == fast.outcome == again
    assert slow.outcome.failure.duration >= 0.2 > fast.outcome.failure.duration


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()], ids=repr)
async def test_whatever_a_job_raises_is_a_failed_attempt(error):
    async def work() -> None:
        raise error

    finished = await perform(job_type(work))
    assert isinstance(finished.outcome, rj.Retry)
    assert finished.outcome.failure.type.endswith(type(error).__name__)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), asyncio.CancelledError()], ids=repr)
async def test_whatever_a_middleware_raises_is_a_failed_attempt(error):
    async def broken(job: rj.Job, call_next: object) -> rj.Outcome:
        raise error

    finished = await perform(job_type(lambda: None, name="work", middleware=(broken,)))
    assert isinstance(finished.outcome, rj.Retry)
    assert finished.outcome.failure.type.endswith(type(error).__name__)


async def test_a_run_that_is_stopped_is_released():
    definition, events = heard(asyncio.sleep, name="sleep")
    task = asyncio.create_task(perform(definition, args={"delay": 100}))
    await asyncio.sleep(0.01)
    task.cancel()
    assert (await task).outcome == rj.Release(reason="its run was stopped")
    assert [type(event) for event in events] == [JobStarted, JobStopped]


async def soon(value: Any = None) -> Any:
    return value


def generate() -> Any:
    yield


async def generate_soon() -> Any:
    yield


@pytest.mark.parametrize(
    "work",
    [generate, generate_soon, lambda: soon(generate()), lambda: soon(soon())],
    ids=["generator", "async generator", "coroutine of a generator", "coroutine of a coroutine"],
)
async def test_code_that_has_not_run_is_no_work_done(work):
    finished = await perform(job_type(work, name="work"))
    assert isinstance(finished.outcome, rj.Retry)
    assert finished.outcome.failure.type == "TypeError"


@pytest.mark.parametrize("work", [lambda: soon(5), lambda: asyncio.ensure_future(soon(5)), lambda: 5])
async def test_whatever_can_be_awaited_on_the_loop_is(work):
    assert (await perform(job_type(work, name="work"))).outcome == rj.Complete(5)


async def test_middleware_wraps_from_the_outside_in_and_may_change_the_outcome():
    order = list[str]()

    def wrap(name: str) -> Any:
        async def middleware(job: rj.Job, call_next: Callable[[rj.Job], Awaitable[rj.Outcome]]) -> rj.Outcome:
            order.append(f"{name} before")
            outcome = await call_next(job)
            order.append(f"{name} after {type(outcome).__name__}")
            return rj.Cancel(name)

        return middleware

    finished = await perform(job_type(lambda: order.append("job"), name="work", middleware=(wrap("outer"), wrap("inner"))))
    assert order == ["outer before", "inner before", "job", "inner after Complete", "outer after Cancel"]
    assert finished.outcome == rj.Cancel("outer")


async def test_the_executor_of_a_pipeline_runs_it_instead_of_its_own():
    ran = list[str]()

    class Place:
        name = "place"

        def __init__(self, label: str) -> None:
            self.label = label

        async def run(self, call: Any) -> Any:
            ran.append(self.label)
            return call.invoke()

        async def close(self) -> None: ...

    own, other = Place("own"), Place("other")
    definition = job_type(lambda: None, name="work", on=own)
    for place in (None, other, None, other):
        await definition.perform(a_job(definition=definition, attempt=1), place)
    assert ran == ["own", "other", "own", "other"]


async def test_queue_time_is_what_it_waited_until_its_claim():
    definition, events = heard(lambda: None, name="work")
    due = datetime.now(UTC)
    await perform(definition, scheduled_at=due, attempted_at=due + timedelta(seconds=3))
    await perform(definition, scheduled_at=due, attempted_at=due - timedelta(seconds=3))
    started = [event for event in events if isinstance(event, JobStarted)]
    assert [event.queue_time for event in started] == [3 * 10**9, 0]


async def test_what_a_job_waits_for_a_place_is_queue_time_and_it_starts_when_it_has_one():
    executor, let_go = rj.in_threads(1), threading.Event()
    definition, events = heard(lambda: let_go.wait(10), name="work", on=executor)
    tasks = [asyncio.create_task(perform(definition)) for _ in range(2)]
    await until(lambda: events)
    await asyncio.sleep(0.3)
    assert [type(event) for event in events] == [JobStarted]
    let_go.set()
    first, second = [await task for task in tasks]
    assert [type(event) for event in events] == [JobStarted, JobStopped] * 2
    assert [event.job for event in events] == [first.job] * 2 + [second.job] * 2
    stops = [event for event in events if isinstance(event, JobStopped)]
    starts = [event for event in events if isinstance(event, JobStarted)]
    assert stops[0].duration >= 0.3e9 > stops[1].duration
    assert starts[1].monotonic_time >= starts[0].monotonic_time + 0.3e9
    await executor.close()


async def test_a_job_that_never_has_a_place_has_a_start_and_an_end():
    """What counts the jobs that run would never come to nothing else."""
    executor, let_go = rj.in_threads(1), threading.Event()
    definition, events = heard(lambda: let_go.wait(10), name="work", on=executor)
    running, waiting = [asyncio.create_task(perform(definition)) for _ in range(2)]
    await until(lambda: events)
    waiting.cancel()
    assert (await waiting).outcome == rj.Release(reason="its run was stopped")
    let_go.set()
    await running
    assert [type(event) for event in events].count(JobStarted) == 2
    assert [type(event) for event in events].count(JobStopped) == 2
    await executor.close()
