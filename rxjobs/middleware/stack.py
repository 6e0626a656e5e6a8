"""What wraps each run and each insert: an app's own middleware, and in between what is built in, which is of the same kind."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rxjobs.call import Executor
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

    The one that was given first is outermost. Around a run are, from outside: the span, the breaker, these, the timeout.
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
        wraps += [_guarded(one.run) for one in self._used if isinstance(one, _Running) or type(one).run is not Middleware.run]
        if how.timeout is not None:
            wraps.append(timeout(how.timeout))
        definition.perform = performer(definition.function, executor, wraps, self._events)


def _guarded(wrap: Wrap) -> Wrap:
    """What an app's own middleware raises fails the attempt, so that what is around it sees a failure like any other."""

    async def run(job: Job, call_next: Next) -> Outcome:
        try:
            outcome = await wrap(job, call_next)
        except BaseException as error:
            if is_wish_to_stop(error):
                raise
            return raised(job, error)
        if isinstance(outcome, Outcome):
            return outcome
        return raised(job, TypeError(f"a middleware gave {outcome!r:.100}, not an outcome: return what call_next(job) gave"))

    return run
