"""What wraps each run and each insert: an app's own middleware, and in between what is built in, which is of the same kind."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from rxjobs.calls import Executor
from rxjobs.decide import raised
from rxjobs.definition import Definition, NewJob
from rxjobs.enqueued import Enqueued
from rxjobs.errors import InvalidOption
from rxjobs.event_stream import EventStream
from rxjobs.job import Job
from rxjobs.middleware.circuits import Circuits
from rxjobs.middleware.timeout import timeout
from rxjobs.outcome import Outcome
from rxjobs.perform import Middleware as Wrap
from rxjobs.perform import Next, performer
from rxjobs.stopping import is_wish_to_stop
from rxjobs.telemetry.signals import Signals

Insert = Callable[[Sequence[NewJob]], Awaitable[list[Enqueued]]]


class Middleware:
    """What `app.use` takes: override `run`, `enqueue`, or both.

    The one that was given first is outermost. Around a run are, from outside: the span, the breaker, these, the timeout. Where a
    job type has a timeout, each of these may take as long by itself, without what it has called; longer fails the attempt.
    """

    async def run(self, job: Job, call_next: Next) -> Outcome:
        """Around one run, in the task of the job; gives its outcome. What is raised here fails the attempt."""
        return await call_next(job)

    async def enqueue(self, news: Sequence[NewJob], call_next: Insert) -> list[Enqueued]:
        """Around one call that enqueues, in the task of the caller, who gets what is raised here.

        It may pass on others than it was given, as many and in order: what comes back belongs to these.
        """
        return await call_next(news)


class _Running(Middleware):
    """A function around each run."""

    def __init__(self, function: Wrap) -> None:
        self.run = function  # type: ignore[method-assign, assignment]


class Stack:
    """The middleware of one app."""

    def __init__(self, signals: Signals, circuits: Circuits, events: EventStream) -> None:
        self._signals = signals
        self._circuits = circuits
        self._events = events
        self.around_inserts: list[Callable[[Sequence[NewJob], Insert], Awaitable[list[Enqueued]]]] = [*signals.around_inserts]
        """What wraps inserts, from outside."""
        self._used: list[Middleware] = []
        self._performed: list[tuple[Definition[..., Any], Executor]] = []

    def use(self, middleware: Middleware | Wrap) -> None:
        """Have runs and inserts wrapped from now on; raises InvalidOption for what cannot wrap them."""
        if not isinstance(middleware, Middleware):
            if not inspect.iscoroutinefunction(middleware) or len(inspect.signature(middleware).parameters) != 2:
                raise InvalidOption(
                    "app.use takes an rj.Middleware, or an async function of a job and of what is to be called next, "
                    f"such as async def log(job, call_next): return await call_next(job); not {middleware!r:.100}"
                )
            middleware = _Running(middleware)
        self._used.append(middleware)
        if type(middleware).enqueue is not Middleware.enqueue:
            self.around_inserts.append(middleware.enqueue)
        for definition, executor in self._performed:
            self._have_performed(definition, executor)

    def add(self, definition: Definition[..., Any], executor: Executor) -> None:
        """Have jobs of a type performed on an executor."""
        self._performed.append((definition, executor))
        self._have_performed(definition, executor)

    def _have_performed(self, definition: Definition[..., Any], executor: Executor) -> None:
        how = definition.how
        wraps: list[Wrap] = [self._signals.middleware(definition)]
        if how.breaker is not None:
            wraps.append(self._circuits.middleware(how.name, how.breaker, how.queue))
        wraps += [
            _guarded(one.run, how.timeout) for one in self._used if isinstance(one, _Running) or type(one).run is not Middleware.run
        ]
        if how.timeout is not None:
            wraps.append(timeout(how.timeout))
        definition.perform = performer(definition.function, executor, wraps, self._events)


def _guarded(wrap: Wrap, seconds: float | None) -> Wrap:
    """What an app's own middleware raises fails the attempt, so that what is around it sees a failure like any other.

    So does what takes more than so many `seconds` in it, without what it has called.
    """

    async def run(job: Job, call_next: Next) -> Outcome:
        try:
            outcome = await (wrap(job, call_next) if seconds is None else _in_its_time(wrap, job, call_next, seconds))
        except _TookTooLong:
            name = getattr(wrap, "__qualname__", repr(wrap))
            return raised(job, TimeoutError(f"{name}, around {job.type}, took longer than its timeout of {seconds:g} s by itself"))
        except BaseException as error:
            if is_wish_to_stop(error):
                raise
            return raised(job, error)
        if isinstance(outcome, Outcome):
            return outcome
        return raised(job, TypeError(f"a middleware gave {outcome!r:.100}, not an outcome: return what call_next(job) gave"))

    return run


class _TookTooLong(Exception):
    """A middleware has had its time."""


async def _in_its_time(wrap: Wrap, job: Job, call_next: Next, seconds: float) -> Outcome:
    """What a middleware gives; its time stands still while what it calls is at work."""
    loop, inside, left = asyncio.get_running_loop(), 0, seconds

    async def called(given: Job) -> Outcome:
        nonlocal inside, left
        if not inside:
            left = (own.when() or 0.0) - loop.time()
            _reschedule(own, None)
        inside += 1
        try:
            return await call_next(given)
        finally:
            inside -= 1
            if not inside:
                _reschedule(own, loop.time() + left)

    try:
        async with asyncio.timeout(seconds) as own:
            return await wrap(job, called)
    except TimeoutError as error:
        if own.expired():
            raise _TookTooLong from error
        raise


def _reschedule(own: asyncio.Timeout, when: float | None) -> None:
    with suppress(RuntimeError):  # it is over: the middleware has had its time, or left a task behind that calls on
        own.reschedule(when)
