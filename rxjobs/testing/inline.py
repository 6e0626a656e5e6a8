"""What is enqueued runs at once, in the test, without a database: `inline`."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec
import reactivex as rx
from reactivex import Observable

from rxjobs.app import App
from rxjobs.awaiting import scheduler_here
from rxjobs.calls import Call, Executor
from rxjobs.client import Insert
from rxjobs.decide import refuse_unrun
from rxjobs.definition import Definition, NewJob
from rxjobs.demand import Demand, now
from rxjobs.enqueued import Enqueued, know_jobs
from rxjobs.errors import InvalidOption
from rxjobs.events import JobsEnqueued
from rxjobs.job import Job, State
from rxjobs.jobs import failed
from rxjobs.ledger import Ledger
from rxjobs.log_lines import Indented, logger
from rxjobs.outcome import Cancel, Complete, Discard, Finished, Outcome, Release, Retry, Snooze
from rxjobs.sources.memory import MemorySource
from rxjobs.testing.under_test import is_open, under_test

T = TypeVar("T")

log = logger("rxjobs.testing")

STATES: dict[type[Outcome], State] = {
    Complete: State.COMPLETED,
    Retry: State.RETRYABLE,
    Snooze: State.SCHEDULED,
    Cancel: State.CANCELLED,
    Discard: State.DISCARDED,
    Release: State.AVAILABLE,
}
"""What becomes of a row by the outcome of its attempt."""
DEEPEST = 50
"""So many jobs may be running, each enqueued by the one before, until it is taken for one that never ends."""


@contextmanager
def inline(app: App, *, raises: bool = False) -> Iterator[Inline]:
    """Within this, whatever the app enqueues runs at once, before the call that enqueues it returns. No database is needed.

    ```
    with inline(app) as ran:
        await sign_up("ada@example.org")        # or, without an event loop, what calls app.sync
    assert ran.outcomes("send_welcome") == [rj.Complete()]
    ```

    Arguments and results go through JSON as they do for real; the app's middleware, the timeout and the executor of the job type
    are there, pipelines are not. Each job has one attempt, whatever its delay; unique keys are not looked at. A job that fails
    is logged, and raises nothing where it was enqueued, as in life; with `raises` its exception comes out of the call.
    """
    if is_open(app) or app.client_instead is not None:
        raise InvalidOption("inline is for an app that is not open: what is enqueued elsewhere meanwhile would go to its database")
    ran = Inline(app, raises)
    app.client_instead, app.sync.instead = app.client(jobs=ran, innermost=[ran.insert]), ran
    try:
        with under_test(app):
            yield ran
    finally:
        app.client_instead = app.sync.instead = None
        app.circuits.forget()


class Inline:
    """What ran at once, in the order in which it ended."""

    def __init__(self, app: App, raises: bool) -> None:
        self.finished: list[Finished] = []
        self._app = app
        self._raises = raises
        self._ids = itertools.count(1)
        self._results: dict[int, Any] = {}

    def outcomes(self, type: Definition[Any, Any] | str | None = None) -> list[Outcome]:
        """How the jobs of a type ended, or all of them."""
        name = type.name if isinstance(type, Definition) else type
        return [one.outcome for one in self.finished if name in (None, one.job.type)]

    async def insert(self, news: Sequence[NewJob], _: Insert) -> list[Enqueued]:
        """Run jobs in the place of inserting them."""
        return [await self._run(new) for new in news]

    def call(self, ask: Callable[[App], Awaitable[T]]) -> T:
        """Answer a call of app.sync: coroutines run in a loop of another thread, plain functions here, where they were enqueued."""
        here = _Here()

        async def answer() -> T:
            _caller.set(here)
            return await ask(self._app)

        return here.while_waiting_for(lambda: asyncio.run(answer()))

    async def result(self, id: int, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - as app.jobs.result
        """As app.jobs.result, of a job that ran here; raises TimeoutError at once for one that would be tried again."""
        finished = next((one for one in self.finished if one.job.id == id), None)
        if finished is None:
            raise failed(id, None)
        if not isinstance(finished.outcome, Retry | Snooze | Release):
            if isinstance(finished.outcome, Complete):
                return self._results.get(id)
            raise failed(id, finished.job)
        why = finished.outcome.reason or type(finished.outcome).__name__
        raise TimeoutError(f"job {id} ({finished.job.type}) is {finished.job.state}, and inline runs it only once: {why}")

    def follow(self, id: int) -> Observable[tuple[float, str]]:
        """Of a job that has ended there is no more progress to come."""
        return rx.empty()

    async def _run(self, new: NewJob) -> Enqueued:
        app, definition = self._app, self._app.definition(new.type)
        app.events.emit(JobsEnqueued(type=new.type, queue=new.queue, count=1))
        ledger = Ledger(MemorySource(), Demand(1), scheduler_here(), app.emit)
        job = ledger.hold(self._job(new, definition), now())
        deep = _depth.set(_depth.get() + 1)
        try:
            if _depth.get() > DEEPEST:
                raise InvalidOption(f"{new.type}: {DEEPEST} jobs run, each enqueued by the one before; use drain for those")
            assert definition.perform is not None
            finished: Finished = await definition.perform(job, self._executor(definition))
        finally:
            job.hold.settled = True
            _depth.reset(deep)
        return self._ended(finished, definition)

    def _job(self, new: NewJob, definition: Definition[..., Any]) -> Job:
        args, payload = definition.read(new.payload)
        return Job(
            id=next(self._ids), type=new.type, queue=new.queue, state=State.EXECUTING, args=args, payload=payload, attempt=1,
            max_attempts=new.max_attempts, priority=new.priority, meta=new.meta, tags=new.tags, definition=definition,
            scheduled_at=new.scheduled_at,
        )  # fmt: skip

    def _executor(self, definition: Definition[..., Any]) -> Executor | None:
        caller = _caller.get()
        return caller if not definition.is_async and definition.how.executor is None else None

    def _ended(self, finished: Finished, definition: Definition[..., Any]) -> Enqueued:
        outcome = finished.outcome
        state = STATES[type(outcome)]
        failure = getattr(outcome, "failure", None)
        errors = [] if failure is None else [{"type": failure.type, "message": failure.message, "traceback": failure.traceback}]
        if isinstance(outcome, Complete) and definition.how.record and outcome.result is not None:
            sealed = definition.seal_result(outcome.result)
            self._results[finished.job.id] = None if sealed is None else definition.open_result(sealed)
        job = msgspec.structs.replace(finished.job.told, state=state, errors=errors)
        self.finished.append(Finished(job, outcome))
        if failure is not None:
            log.error("job %s (%s) is %s\n%s", job.id, job.type, state, Indented(failure.traceback or failure.message))
        if self._raises and (error := getattr(outcome, "exception", None)) is not None:
            raise error
        row = Enqueued(job.id, state)
        know_jobs(row, {"jobs": self})
        return row


class _Here:
    """The thread that called, as an executor: it runs what a loop in another thread hands to it while it waits for its answer."""

    name = "caller"

    def __init__(self) -> None:
        self._todo: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    async def run(self, call: Call) -> Any:
        """Call the function there, in the context of the job."""
        loop, context = asyncio.get_running_loop(), copy_context()
        answer: asyncio.Future[Any] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            if not answer.done():
                answer.set_result(value) if error is None else answer.set_exception(error)

        def work() -> None:
            value, error = None, None
            try:
                value = refuse_unrun(context.run(call.invoke))
            except BaseException as raised:  # it is the caller's to know
                error = raised if not isinstance(raised, StopIteration) else RuntimeError(f"the job raised {raised!r}")
            loop.call_soon_threadsafe(settle, value, error)

        self._todo.put(work)
        return await answer

    async def close(self) -> None:
        """Nothing was started."""

    def while_waiting_for(self, work: Callable[[], T]) -> T:
        """Have something done in another thread, in the caller's context, and do here what it hands over meanwhile."""
        answers: list[T] = []
        errors: list[BaseException] = []
        context: Context = copy_context()

        def elsewhere() -> None:
            try:
                answers.append(context.run(work))
            except BaseException as error:  # raised where the work is waited for
                errors.append(error)
            finally:
                self._todo.put(None)

        thread = threading.Thread(target=elsewhere, name="rxjobs-inline", daemon=True)
        thread.start()
        while (todo := self._todo.get()) is not None:
            todo()
        thread.join()
        if errors:
            raise errors[0]
        return answers[0]


_caller: ContextVar[_Here | None] = ContextVar("rxjobs_inline_caller", default=None)
_depth: ContextVar[int] = ContextVar("rxjobs_inline_depth", default=0)
