"""Enqueue jobs, and look after the rows: what an app does without running anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

import asyncpg

from rxjobs.definition import Enqueued, NewJob
from rxjobs.errors import InvalidOption
from rxjobs.events import EventStream, JobsEnqueued
from rxjobs.failure import qualified_name
from rxjobs.stopping import spawn
from rxjobs.store.encoding import to_json
from rxjobs.store.store import Store

BATCH = 1000

Insert = Callable[[Sequence[NewJob]], Awaitable[list[Enqueued]]]
Around = Callable[[Sequence[NewJob], Insert], Awaitable[list[Enqueued]]]
"""What wraps one call that enqueues, in the caller's own context: it is given the new jobs and the rest of the way."""


class Client:
    """Inserts jobs. Calls that come while an insert runs share the next one."""

    def __init__(self, store: Store, events: EventStream, around: Sequence[Around] = ()) -> None:
        self._store = store
        self._events = events
        self._around = around
        self._waiting: list[tuple[NewJob, asyncio.Future[Enqueued]]] = []
        self._inserting = False

    async def enqueue(self, new: NewJob, connection: Any = None) -> Enqueued:
        """Insert one job. With a connection the insert is part of its transaction, else it is committed on return."""
        _checked(new)
        insert: Insert = self._share if connection is None else lambda news: self._insert(news, connection)
        (enqueued,) = await self._through(insert, [new])
        return enqueued

    async def enqueue_many(self, news: Iterable[NewJob] | AsyncIterable[NewJob], connection: Any = None) -> list[Enqueued]:
        """Insert jobs, in batches of a thousand, each committed by itself unless a connection is given; in order."""
        return [enqueued async for enqueued in self.stream_many(news, connection)]

    async def stream_many(self, news: Iterable[NewJob] | AsyncIterable[NewJob], connection: Any = None) -> AsyncIterator[Enqueued]:
        """As enqueue_many, giving each row as soon as its batch is inserted: any number of jobs in the memory of one batch."""
        async for batch in _batches(news):
            for enqueued in await self._through(lambda news: self._insert(news, connection), batch):
                yield enqueued

    async def _through(self, way: Insert, news: Sequence[NewJob]) -> list[Enqueued]:
        for wrap in reversed(self._around):
            way = _wrapped(wrap, way)
        return await way(news)

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
                batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
                await self._insert_shared(batch)
        finally:
            self._inserting = False

    async def _insert_shared(self, batch: Sequence[tuple[NewJob, asyncio.Future[Enqueued]]]) -> None:
        try:
            rows = await self._insert([new for new, _ in batch], None)
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
            for (_, future), row in zip(batch, rows, strict=True):
                if not future.done():
                    future.set_result(row)

    async def _insert(self, jobs: Sequence[NewJob], connection: Any) -> list[Enqueued]:
        joined = _asyncpg(connection)
        enqueued = [Enqueued(*row) for row in await self._store.insert_jobs(jobs, joined)]
        if self._events.heard:
            self._tell(jobs)
        return enqueued

    def _tell(self, jobs: Sequence[NewJob]) -> None:
        counts: dict[tuple[str, str], int] = {}
        for job in jobs:
            kind = job.type, job.queue
            counts[kind] = counts.get(kind, 0) + 1
        for (name, queue), count in counts.items():
            self._events.emit(JobsEnqueued(type=name, queue=queue, count=count))


def _wrapped(wrap: Around, inner: Insert) -> Insert:
    return lambda jobs: wrap(jobs, inner)


def _fail(batch: Sequence[tuple[NewJob, asyncio.Future[Enqueued]]], error: BaseException) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)


def _asyncpg(connection: Any) -> Any:
    if connection is None or isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        return connection
    raise InvalidOption(f"connection= takes an asyncpg connection (of a pool or not), not {qualified_name(type(connection))}")


async def _batches(news: Iterable[NewJob] | AsyncIterable[NewJob]) -> AsyncIterator[list[NewJob]]:
    batch: list[NewJob] = []
    async for new in _each(news):
        batch.append(new)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


async def _each(news: Iterable[NewJob] | AsyncIterable[NewJob]) -> AsyncIterator[NewJob]:
    if isinstance(news, AsyncIterable):
        async for new in news:
            yield _checked(new)
    else:
        for new in news:
            yield _checked(new)


def _checked(new: Any) -> NewJob:
    if not isinstance(new, NewJob):
        raise InvalidOption(f"what is enqueued is made by a job type's new(...), and {new!r:.100} is not")
    if new.meta:  # refused here, since one that cannot be sent would fail all that share its insert
        try:
            text = to_json(new.meta)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidOption(f"{new.type}: its meta cannot be written as JSON: {error}") from error
        if rb"\u0000" in text:
            raise InvalidOption(f"{new.type}: PostgreSQL holds no NUL character, and there is one in its meta")
    return new
