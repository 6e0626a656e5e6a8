"""Enqueue jobs, and look after the rows: what an app does without running anything."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from itertools import islice
from operator import attrgetter
from typing import Any

import asyncpg

from rxjobs.definition import Definition, NewJob
from rxjobs.enqueued import Enqueued, Following, know_jobs
from rxjobs.errors import InvalidOption
from rxjobs.event_stream import EventStream
from rxjobs.events import JobsEnqueued
from rxjobs.results import Endings
from rxjobs.stopping import spawn
from rxjobs.store.encoding import to_json
from rxjobs.store.joining import joined, whole
from rxjobs.store.store import Store
from rxjobs.store.twins import insert_unique, insert_unique_anew, refusal
from rxjobs.store.undone import until_done
from rxjobs.store.waking import Waking

BATCH = 1000
FAIR = 100
"""So many jobs are made before others on the event loop get their turn."""

Insert = Callable[[Sequence[NewJob]], Awaitable[list[Enqueued]]]
Around = Callable[[Sequence[NewJob], Insert], Awaitable[list[Enqueued]]]
"""What wraps one call that enqueues, in the caller's own context: it is given the new jobs and the rest of the way."""


class Client:
    """Inserts jobs. Calls that come while an insert runs share the next one."""

    def __init__(
        self,
        store: Store,
        events: EventStream,
        around: Sequence[Around] = (),
        jobs: Following | None = None,
        poll_seconds: float = 1.0,
        made: Callable[[Any], Any] = lambda new: new,
    ) -> None:
        self.endings = Endings(store, poll_seconds)
        self._jobs = {} if jobs is None else {"jobs": jobs}
        self._store = store
        self._events = events
        self._around = around
        self._made = made
        self._waking = Waking(store.notify_queues)
        self._shared: Insert = self._share
        self._wrapped_by = 0
        """What a lone job goes through, and how many of those around it that knows of."""
        self._waiting: list[tuple[NewJob, asyncio.Future[Enqueued]]] = []
        self._inserting = False

    async def enqueue(self, new: NewJob, connection: Any = None) -> Enqueued:
        """Insert one job. With a connection the insert is part of its transaction, else it is committed on return."""
        news = [_checked(self._made(new))]
        if connection is not None:
            (enqueued,) = await self._through(lambda news: self._insert(news, connection, refuses=True), news)
            return enqueued
        if len(self._around) != self._wrapped_by:  # an app may be told of more at any time
            self._wrapped_by, self._shared = len(self._around), self._wrap(self._share)
        (enqueued,) = await self._shared(news)
        return enqueued

    async def enqueue_many(self, news: Iterable[NewJob] | AsyncIterable[NewJob], connection: Any = None) -> list[Enqueued]:
        """Insert jobs, in batches of a thousand, each committed by itself unless a connection is given; in order."""
        enqueued: list[Enqueued] = []
        async with aclosing(self._insert_batches(news, connection)) as batches:
            async for rows in batches:
                enqueued += rows
        return enqueued

    async def stream_many(self, news: Iterable[NewJob] | AsyncIterable[NewJob], connection: Any = None) -> AsyncIterator[Enqueued]:
        """As enqueue_many, giving each row as soon as its batch is inserted: any number of jobs in the memory of two batches."""
        async with aclosing(self._insert_batches(news, connection)) as batches:
            async for rows in batches:
                for row in rows:
                    yield row

    def _insert_batches(self, news: Iterable[NewJob] | AsyncIterable[NewJob], connection: Any) -> AsyncGenerator[list[Enqueued]]:
        def insert(batch: list[NewJob]) -> Coroutine[Any, Any, list[Enqueued]]:
            return self._through(lambda news: self._insert(news, connection, refuses=True), batch)

        # a caller's own connection may be in the caller's use while rows are given out
        inserted = _in_turn if connection is not None else _ahead
        return inserted(_batches(news, self._made), insert)

    async def finish(self) -> None:
        """Do what is owed to others before the connections are closed."""
        self.endings.close()
        await self._waking.finish()

    async def _through(self, way: Insert, news: Sequence[NewJob]) -> list[Enqueued]:
        return await self._wrap(way)(news)

    def _wrap(self, way: Insert) -> Insert:
        for wrap in reversed(self._around):
            way = _wrapped(wrap, way)
        return way

    async def _share(self, news: Sequence[NewJob]) -> list[Enqueued]:
        """Insert a job together with those that come meanwhile."""
        (new,) = news
        loop = asyncio.get_running_loop()
        row: asyncio.Future[Enqueued] = loop.create_future()
        self._waiting.append((new, row))
        if not self._inserting:
            self._inserting = True
            spawn(loop, self._insert_waiting())
        return [await row]

    async def _insert_waiting(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                if len(batch) > BATCH:
                    batch, self._waiting = batch[:BATCH], batch[BATCH:]
                await self._insert_shared(batch)
        finally:
            self._inserting = False

    async def _insert_shared(self, batch: Sequence[tuple[NewJob, asyncio.Future[Enqueued]]]) -> None:
        try:
            rows = await self._insert([new for new, _ in batch], None, refuses=False)
        except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
            # refused, so that nothing was inserted: who is to blame is found by inserting each alone
            if len(batch) == 1:
                _fail(batch, error)
                return
            for one in batch:
                await self._insert_shared([one])
        except BaseException as error:
            _fail(batch, error)
            if not isinstance(error, Exception):
                raise
        else:
            for (new, future), row in zip(batch, rows, strict=True):
                if future.done():
                    continue
                if row.duplicate and (refused := refusal(new, row)) is not None:
                    future.set_exception(refused)
                else:
                    future.set_result(row)

    async def _insert(self, jobs: Sequence[NewJob], connection: Any, *, refuses: bool) -> list[Enqueued]:
        """Insert jobs together; where it `refuses`, none of them if one is a duplicate that was to be an error."""
        queues = (jobs[0].queue,) if len(jobs) == 1 else set(map(_queue, jobs))
        if connection is None:
            with self._waking.inserting(queues, len(jobs)) as wakes:
                enqueued = await self._insert_rows(jobs, None, notify=wakes, refuses=refuses)
        else:  # it is the commit of the caller's own transaction that wakes, whenever that comes
            enqueued = await self._insert_rows(jobs, await joined(connection), notify=True, refuses=refuses)
        for row in enqueued:
            know_jobs(row, self._jobs)
        if self._events.heard:
            if any(map(_duplicate, enqueued)):
                jobs = [job for job, row in zip(jobs, enqueued, strict=True) if not row.duplicate]
            self._tell(jobs)
        return enqueued

    async def _insert_rows(self, jobs: Sequence[NewJob], connection: Any, *, notify: bool, refuses: bool) -> list[Enqueued]:
        if not any(map(_unique, jobs)):
            return await self._store.insert_jobs(jobs, connection, notify=notify)
        if connection is None:
            return await until_done(lambda: insert_unique_anew(self._store, jobs, notify=notify, refuses=refuses))
        async with whole(connection):
            return await insert_unique(self._store, jobs, connection, notify=notify, refuses=refuses)

    def _tell(self, jobs: Sequence[NewJob]) -> None:
        if len(jobs) == 1:
            self._events.emit(JobsEnqueued(type=jobs[0].type, queue=jobs[0].queue, count=1))
            return
        for (name, queue), count in Counter(map(_type_and_queue, jobs)).items():
            self._events.emit(JobsEnqueued(type=name, queue=queue, count=count))


_queue = attrgetter("queue")
_unique = attrgetter("unique")
_duplicate = attrgetter("duplicate")
_type_and_queue = attrgetter("type", "queue")


def _wrapped(wrap: Around, inner: Insert) -> Insert:
    return lambda jobs: wrap(jobs, inner)


def _fail(batch: Sequence[tuple[NewJob, asyncio.Future[Enqueued]]], error: BaseException) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)


InsertBatch = Callable[[list[NewJob]], Coroutine[Any, Any, list[Enqueued]]]


async def _in_turn(batches: AsyncIterable[list[NewJob]], insert: InsertBatch) -> AsyncGenerator[list[Enqueued]]:
    """The rows of batches, each inserted when the one before has been given out."""
    async for batch in batches:
        yield await insert(batch)


async def _ahead(batches: AsyncIterable[list[NewJob]], insert: InsertBatch) -> AsyncGenerator[list[Enqueued]]:
    """The rows of batches, each made while the one before is inserted."""
    loop = asyncio.get_running_loop()
    inserting: asyncio.Task[list[Enqueued]] | None = None
    failure: Exception | None = None
    try:
        try:
            async for batch in batches:
                before, inserting = inserting, None
                rows = [] if before is None else await before
                inserting = spawn(loop, insert(batch))
                yield rows
        except Exception as error:
            failure = error
        # also where no more can be made: what was begun is committed, and told
        if inserting is not None:
            yield await inserting
        if failure is not None:
            raise failure
    finally:
        if inserting is not None and not inserting.done():
            await asyncio.wait([inserting])


async def _batches(news: Iterable[NewJob] | AsyncIterable[NewJob], made: Callable[[Any], Any]) -> AsyncIterator[list[NewJob]]:
    batch: list[NewJob] = []
    async for some in _few(news):
        batch += [_checked(made(new)) for new in some]
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


async def _few(news: Iterable[NewJob] | AsyncIterable[NewJob]) -> AsyncIterator[Sequence[NewJob]]:
    """New jobs as they come: one by one, or as many at once as are fair to others on the event loop."""
    if isinstance(news, AsyncIterable):
        async for new in news:
            yield (new,)
        return
    if not isinstance(news, Iterable):
        raise InvalidOption(f"enqueue_many takes many new jobs, such as a list or a generator, not {news!r:.100}")
    each = iter(news)
    while some := list(islice(each, FAIR)):
        yield some
        await asyncio.sleep(0)


def _checked(new: Any) -> NewJob:
    if not isinstance(new, NewJob):
        raise InvalidOption(_no_new_job(new))
    if new.meta:  # refused here, since one that cannot be sent would fail all that share its insert
        try:
            text = to_json(new.meta)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidOption(f"{new.type}: its meta cannot be written as JSON: {error}") from error
        if rb"\u0000" in text:
            raise InvalidOption(f"{new.type}: PostgreSQL holds no NUL character, and there is one in its meta")
    return new


def _no_new_job(given: Any) -> str:
    what = f"what is enqueued is made by a job type's new(...), and {given!r:.100} is not"
    match given:
        case Definition():
            name = given.function.__name__
            return f"{what}: write {name}.new(...), or await {name}.enqueue(...)"
        case Coroutine():
            given.close()  # that it was never awaited is no second mistake
            name = getattr(given, "__name__", "function")
            return f"{what}: to call the function runs it here; write {name}.new(...) in place of {name}(...)"
    return what
