"""One job, start to finish: run its function on its executor with the middleware around it, and decide how it ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from rxjobs.call import Call, Executor
from rxjobs.decide import raised, returned
from rxjobs.demand import ended, now
from rxjobs.events import Emit, EventStream, JobDiscarded, JobFailed, JobStarted, JobStopped
from rxjobs.failure import MESSAGE_LIMIT, Failure, clean
from rxjobs.job import Job, running_job
from rxjobs.outcome import Discard, Finished, Outcome, Release, Retry
from rxjobs.stopping import is_wish_to_stop

Next = Callable[[Job], Awaitable[Outcome]]
Middleware = Callable[[Job, Next], Awaitable[Outcome]]
"""What wraps one run: it is given the job and the rest of the way, and gives the outcome. A failure is an outcome, not raised."""

Perform = Callable[[Job, Executor | None], Awaitable[Finished]]


def performer(function: Callable[..., Any], executor: Executor, middleware: Sequence[Middleware], events: EventStream) -> Perform:
    """How jobs of one type are performed: on the executor, or on the one that a pipeline names instead."""
    ways: dict[Executor | None, Next] = {None: _way(function, executor, middleware)}

    async def perform(job: Job, on: Executor | None) -> Finished:
        way = ways.get(on)
        if way is None:
            assert on is not None  # noqa: S101 - None is there from the start
            way = ways[on] = _way(function, on, middleware)
        began = now()
        queue_time = waited(job, began)
        if events.heard:
            events.emit(JobStarted(job=job.told, queue_time=queue_time, monotonic_time=began))
        token = running_job.set(job)
        try:
            outcome = await way(job)
        except BaseException as error:  # a middleware of the app's own may raise
            outcome = Release(reason="its run was stopped") if is_wish_to_stop(error) else raised(job, error)
        finally:
            running_job.reset(token)
        return ended(job, tell_end(events.emit, job, outcome, queue_time, now() - began))

    return perform


def tell_end(emit: Emit, job: Job, outcome: Outcome, queue_time: int, duration: int) -> Outcome:
    """Make known how an attempt ended; gives the outcome, a failure completed with how long it took."""
    if not isinstance(outcome, Retry | Discard):
        emit(JobStopped(job=job.told, duration=duration, queue_time=queue_time, outcome=outcome))
        return outcome
    failure = outcome.failure or Failure(f"rxjobs.{type(outcome).__name__}", clean(str(outcome.reason), MESSAGE_LIMIT))
    failure = msgspec.structs.replace(failure, duration=duration / 1e9)
    outcome = replace(outcome, failure=failure)  # a copy: many jobs may end with one and the same outcome
    emit(JobFailed(job=job.told, duration=duration, queue_time=queue_time, outcome=outcome, error=failure))
    if isinstance(outcome, Discard):
        emit(JobDiscarded(job=job.told, outcome=outcome))
    return outcome


def waited(job: Job, began: int) -> int:
    """How long a job could have run before it did, ns: until its claim by PostgreSQL's clock, then by our own."""
    before = 0
    if job.attempted_at is not None and job.scheduled_at is not None:
        before = max(0, round((job.attempted_at - job.scheduled_at).total_seconds() * 1e9))
    return before + (began - job.hold.fetched if job.hold is not None else 0)


def _way(function: Callable[..., Any], executor: Executor, middleware: Sequence[Middleware]) -> Next:
    async def run(job: Job) -> Outcome:
        try:
            return returned(job, await executor.run(Call(function, job)))
        except BaseException as error:
            if is_wish_to_stop(error):
                raise
            return raised(job, error)

    way: Next = run
    for wrap in reversed(middleware):
        way = _wrapped(wrap, way)
    return way


def _wrapped(wrap: Middleware, inner: Next) -> Next:
    return lambda job: wrap(job, inner)
