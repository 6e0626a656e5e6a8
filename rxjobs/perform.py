"""One job, start to finish: run its function on its executor with the middleware around it, and decide how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from rxjobs.calls import Call, Executor, Start, starting
from rxjobs.decide import raised, returned
from rxjobs.demand import ended, now
from rxjobs.event_stream import EventStream
from rxjobs.events import Emit, JobDiscarded, JobFailed, JobStopped
from rxjobs.failure import MESSAGE_LIMIT, Failure, clean
from rxjobs.hold import CANCELLED
from rxjobs.job import Job, running_job
from rxjobs.outcome import COMPLETE, Cancel, Discard, Finished, Outcome, Release, Retry
from rxjobs.stopping import is_wish_to_stop

Next = Callable[[Job], Awaitable[Outcome]]
Middleware = Callable[[Job, Next], Awaitable[Outcome]]
"""What wraps one run: it is given the job and the rest of the way, and gives the outcome. A failure is an outcome, not raised."""


class Around:
    """A middleware that is given the rest of the way once for all runs, and gives what is called for each: a call fewer a run."""

    def __init__(self, around: Callable[[Next], Next]) -> None:
        self.around = around

    def __call__(self, job: Job, call_next: Next) -> Awaitable[Outcome]:
        return self.around(call_next)(job)


FAILURES = (Retry, Discard)
"""The outcomes of attempts that failed."""
LOOK = 0.05
"""Seconds that may pass until it is made known that a run has begun which had to wait for a place."""

Perform = Callable[[Job, Executor | None], Awaitable[Finished]]


def performer(function: Callable[..., Any], executor: Executor, middleware: Sequence[Middleware], events: EventStream) -> Perform:
    """How jobs of one type are performed: on the executor, or on the one that a pipeline names instead."""
    ways: dict[Executor | None, Way] = {None: _way(function, executor, middleware)}
    unbegun = _Unbegun(events)

    async def perform(job: Job, on: Executor | None) -> Finished:
        hold = job.hold
        if hold is not None and (reason := hold.recalled) is not None:  # it may have waited for its turn
            return ended(job, Release(reason=reason))
        way = ways.get(on)
        if way is None:
            assert on is not None  # noqa: S101 - None is there from the start
            way = ways[on] = _way(function, on, middleware)
        run = unbegun.add(job) if way.tells_start else None
        began = now()
        queue_time = 0
        if run is None:
            queue_time = waited(job, began)
            events.run_began(job, queue_time, began)
        token = running_job.set(job)
        try:
            outcome = await way.run(job)
        except BaseException as error:  # a middleware of the app's own may raise
            outcome = Release(reason="its run was stopped") if is_wish_to_stop(error) else raised(job, error)
        finally:
            running_job.reset(token)
        if hold is not None and hold.ledger.cancelling and hold.is_to_be_cancelled:
            outcome = Cancel(CANCELLED)  # however it ended when it was stopped
        if run is not None:
            began, queue_time = unbegun.settle(run)
        duration = now() - began
        if isinstance(outcome, FAILURES):
            return ended(job, _tell_failure(events.emit, job, outcome, queue_time, duration))
        events.run_stopped(job, outcome, queue_time, duration)
        if hold is not None:
            hold.outcome = outcome
        return Finished(job, outcome)

    return perform


class Way(NamedTuple):
    """How jobs of one type are performed on one executor."""

    run: Next
    tells_start: bool


class _Unbegun:
    """The runs of one job type that may wait for a place first. That is queue time still: a run begins when it has one.

    They are looked at now and then. For a thread to wake the loop each time that a job begins in it takes as long as all the rest
    that rxjobs does about a small one.
    """

    def __init__(self, events: EventStream) -> None:
        self._events = events
        self._runs: set[_Run] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, job: Job) -> _Run:
        """A run that is about to be handed over to its executor."""
        run = _Run(job)
        self._runs.add(run)
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.call_later(LOOK, self._look, context=Context())
        return run

    def settle(self, run: _Run) -> tuple[int, int]:
        """When a run that has ended began, and how long it could have run before; it is told if it was not yet."""
        starting.reset(run.token)
        began = run.start.at or run.handed_over
        if run in self._runs:
            self._runs.remove(run)
            return began, _tell_start(self._events, run.job, began)
        return began, waited(run.job, began)

    def _look(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            return
        for run in [run for run in self._runs if run.start.at]:
            self._runs.remove(run)
            _tell_start(self._events, run.job, run.start.at or 0)
        if self._runs:
            self._loop.call_later(LOOK, self._look, context=Context())
        else:
            self._loop = None


class _Run:
    __slots__ = ("handed_over", "job", "start", "token")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.handed_over = now()
        self.start = Start(job.id)
        self.token = starting.set(self.start)


def _tell_start(events: EventStream, job: Job, began: int) -> int:
    """Make known that an attempt began; gives how long the job could have run before."""
    queue_time = waited(job, began)
    events.run_began(job, queue_time, began)
    return queue_time


def tell_end(emit: Emit, job: Job, outcome: Outcome, queue_time: int, duration: int) -> Outcome:
    """Make known how an attempt ended; gives the outcome, a failure completed with how long it took."""
    if isinstance(outcome, FAILURES):
        return _tell_failure(emit, job, outcome, queue_time, duration)
    emit(JobStopped(job=job.told, duration=duration, queue_time=queue_time, outcome=outcome))
    return outcome


def _tell_failure(emit: Emit, job: Job, outcome: Retry | Discard, queue_time: int, duration: int) -> Outcome:
    failure = outcome.failure or Failure(f"rxjobs.{type(outcome).__name__}", clean(str(outcome.reason), MESSAGE_LIMIT))
    failure = msgspec.structs.replace(failure, duration=duration / 1e9)
    outcome = replace(outcome, failure=failure)  # a copy: many jobs may end with one and the same outcome
    emit(JobFailed(job=job.told, duration=duration, queue_time=queue_time, outcome=outcome, error=failure))
    if isinstance(outcome, Discard):
        emit(JobDiscarded(job=job.told, outcome=outcome))
    return outcome


def waited(job: Job, began: int) -> int:
    """How long a job could have run before it did, ns: until its claim by PostgreSQL's clock, then by our own."""
    since, until, hold, here = job.scheduled_at, job.attempted_at, job.hold, 0
    if hold is not None:
        here = began - hold.fetched
    if since is None or until is None:
        return here
    before = int((until - since).total_seconds() * 1e9)
    return here + before if before > 0 else here


def _way(function: Callable[..., Any], executor: Executor, middleware: Sequence[Middleware]) -> Way:
    bind = getattr(executor, "bind", None)
    call: Callable[[Job], Awaitable[Any]] = bind(function) if bind else lambda job: executor.run(Call(function, job))

    async def run(job: Job) -> Outcome:
        try:
            value = await call(job)
            return COMPLETE if value is None else returned(job, value)
        except BaseException as error:
            if is_wish_to_stop(error):
                raise
            return raised(job, error)

    keeps_time = getattr(executor, "keeps_time", False)
    way: Next = run
    for wrap in reversed(middleware):
        if not (keeps_time and getattr(wrap, "limits_time", False)):
            way = _wrapped(wrap, way)
    return Way(way, getattr(executor, "tells_start", False))


def _wrapped(wrap: Middleware, inner: Next) -> Next:
    return wrap.around(inner) if isinstance(wrap, Around) else lambda job: wrap(job, inner)
