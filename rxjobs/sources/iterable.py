"""Jobs from anything that can be iterated over."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable
from reactivex.subject import Subject

from rxjobs.awaiting import let_others, scheduler_here
from rxjobs.definition import Definition, NewJob
from rxjobs.errors import InvalidOption
from rxjobs.job import Job
from rxjobs.outcome import Finished
from rxjobs.scope import Scope, scope_here
from rxjobs.sources.kept import claimed, give_again

MOST_WAITING = 10_000
"""While so many jobs wait to be given again, nothing more is read: they are in memory."""
FAIR = 200
"""So many items are taken in one go."""

Make = Callable[[Any], Any]


class Jobs(Protocol):
    """What knows job types by name: an app. Raises UnknownJobType."""

    def definition(self, name: str) -> Any: ...


class IteratedSource:
    """What sources of items have in common: items become jobs, and jobs that are not done come back."""

    def __init__(self, make: Make | None, app: Jobs | None, on_settle: Callable[[Finished], Any] | None) -> None:
        for name, value in (("make", make), ("on_settle", on_settle)):
            if value is not None and not callable(value):
                raise InvalidOption(f"{type(self).__name__}: {name} is a function, not {value!r:.100}")
        self._make = make
        self._app = app
        self._on_settle = on_settle
        self._ids = itertools.count(1)
        self._open: dict[int, Job] = {}
        """The jobs that are not done, as they were made."""
        self._given: set[int] = set()
        self._again: list[Job] = []
        self._wakes: Subject[object] = Subject()
        self._error: Exception | None = None
        self._is_exhausted = False
        self._listeners = 0

    @property
    def wakes(self) -> Observable[object]:
        """A job that is ready again, or an item; completes when the last job of the last item is done."""
        return Observable(self._listen)

    @property
    def is_exhausted(self) -> bool:
        """Whether there are no more items, and no job waits to come back."""
        return self._is_exhausted and self._error is None and len(self._open) == len(self._given)

    async def fetch(self, n: int) -> list[Job]:
        """Up to n jobs: first those that are due again, then new ones. Raises what reading an item or making its job raised."""
        jobs: list[Job] = []
        while len(jobs) < n:
            try:
                job = self._again.pop(0) if self._again else await self._next()
            except Exception as error:
                if not jobs:
                    raise
                self._error = error  # raised when it is asked next: the jobs before it are good
                self._wakes.on_next("error")
                break
            if job is None:
                break
            jobs.append(job)
            self._given.add(job.id)
            if len(jobs) % FAIR == 0:
                await let_others()
        self._end_if_last()
        return [claimed(job) for job in jobs]

    async def settle(self, finished: list[Finished]) -> None:
        """Tell `on_settle` of each outcome, and have those jobs given again that are not done."""
        for one in finished:
            if one.job.id not in self._given:
                continue  # told at a try that failed on a later one
            if self._on_settle is not None:
                answer = self._on_settle(one)
                if inspect.isawaitable(answer):
                    await answer
            self._given.discard(one.job.id)
            if not give_again(one, self._open, self._come_again):
                self._open.pop(one.job.id, None)
        self._end_if_last()

    async def read(self) -> Any:
        """The next item; raises StopAsyncIteration when there is none, and Later when there is none yet."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing more is read."""
        raise NotImplementedError

    async def _next(self) -> Job | None:
        """A job of the next item, if there is one now."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._is_exhausted or len(self._open) - len(self._given) >= MOST_WAITING:
            return None
        while True:
            try:
                item = await self.read()
            except Later:
                return None
            except StopAsyncIteration:
                self._is_exhausted = True
                return None
            job, delay = self._job(item)
            if job.id in self._open:
                raise ValueError(f"{self!r} gave a second job with the id {job.id} before the first was done")
            self._open[job.id] = job
            if delay <= 0:
                return job
            scheduler_here().later(delay, partial(self._come_again, job))

    def _job(self, item: Any) -> tuple[Job, float]:
        """The job that an item is, or is made into, and for how many seconds it is not to run yet."""
        made = item
        if self._make is not None and not isinstance(item, Job | NewJob):
            made = self._make.new(item) if isinstance(self._make, Definition) else self._make(item)
        if isinstance(made, NewJob):
            due = 0.0 if made.scheduled_at is None else (made.scheduled_at - datetime.now(UTC)).total_seconds()
            return self._made(made), max(made.delay, due)
        if isinstance(made, Job):
            return made, 0.0
        raise TypeError(
            f"{self!r} needs make=, a job type or a function of an item that gives a Job or what a job type's new(...) gives: "
            f"{made!r:.100} is neither"
        )

    def _made(self, new: NewJob) -> Job:
        definition = self._make if isinstance(self._make, Definition) else getattr(self._make, "__self__", None)
        if not isinstance(definition, Definition) or definition.name != new.type:
            if self._app is None:
                raise InvalidOption(f"{self!r} needs app=, the app that knows the job type {new.type!r}")
            definition = self._app.definition(new.type)
        args, payload = definition.read(new.payload)
        return Job(
            id=next(self._ids), type=new.type, queue=new.queue, args=args, payload=payload,
            priority=new.priority, max_attempts=new.max_attempts, tags=new.tags, meta=new.meta, definition=definition,
        )  # fmt: skip

    def _come_again(self, job: Job) -> None:
        self._again.append(job)
        self._wakes.on_next("again")

    def _end_if_last(self) -> None:
        if self._is_exhausted and not self._open and self._error is None:
            self._wakes.on_completed()

    def _listen(self, observer: abc.ObserverBase[object], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        scope = scope_here(scheduler)
        self._listeners += 1
        listening = self._wakes.subscribe(observer)
        return CompositeDisposable(listening, Disposable(lambda: scope.scheduler.here(lambda: self._leave(scope))))

    def _leave(self, scope: Scope) -> None:
        self._listeners -= 1
        if scope.is_breaking and not scope.stopping:
            scope.on_stop(self._close_unless_heard)  # it is about to be subscribed again, and goes on where it was
        else:
            self._close_unless_heard()

    def _close_unless_heard(self) -> None:
        if not self._listeners:
            self._is_exhausted = True
            self.close()


class Later(Exception):
    """There is no item yet."""


class IterableSource(IteratedSource):
    """The items of an iterable as jobs: `rj.pull(rj.IterableSource(users, send_welcome), max_demand=10)`.

    An item that is a Job is taken as it is. Of others `make` makes one: a job type, which takes the item for its argument, or a
    function of an item that gives a Job, or what a job type's `new(...)` gives (with `app=`, which knows that type). As many items
    are taken as jobs are asked for, on the event loop: what takes long is to be an AsyncIterableSource.

    The stream ends when the last item is done. A job that is retried, snoozed or released comes back after its delay; until then it
    is in the memory of this process and nowhere else. While 10,000 wait so, nothing more is read. `on_settle(finished)`, a plain
    or a coroutine function, is told of each outcome before its job's place is free; when it raises it is tried again, later each
    time. A generator is closed when the stream is left.
    """

    def __init__(
        self,
        items: Iterable[Any],
        make: Make | None = None,
        *,
        app: Jobs | None = None,
        on_settle: Callable[[Finished], Any] | None = None,
    ) -> None:
        super().__init__(make, app, on_settle)
        if not isinstance(items, Iterable):
            more = "; use rj.AsyncIterableSource" if isinstance(items, AsyncIterable) else ""
            raise InvalidOption(f"IterableSource takes an iterable, not {items!r:.100}{more}")
        self._items: Iterator[Any] = iter(items)

    def __repr__(self) -> str:
        return f"IterableSource({self._items!r:.100})"

    async def read(self) -> Any:
        try:
            return next(self._items)
        except StopIteration:
            raise StopAsyncIteration from None

    def close(self) -> None:
        if inspect.isgenerator(self._items):
            self._items.close()
