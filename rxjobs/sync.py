"""The client side for code without an event loop: `app.sync`."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rxjobs.definition import NewJob
from rxjobs.enqueued import Enqueued
from rxjobs.errors import NotOpen

if TYPE_CHECKING:
    from rxjobs.app import App
    from rxjobs.client import Client

T = TypeVar("T")

CLOSE_SECONDS = 5.0


class Instead(Protocol):
    """What answers calls in the place of an app that is open."""

    def call(self, ask: Callable[[App], Awaitable[T]]) -> T: ...


class Sync:
    """What an app's client side does, for code that waits for it: plain functions, threads, web servers that fork.

    There is nothing to open or to close. The first call starts a thread with an event loop and connections of its own, one for the
    whole process; a process that is forked gets its own. With `connection`, a synchronous one of psycopg, SQLAlchemy or Django, no
    thread is needed: what is inserted is sent over it by the caller.
    """

    def __init__(self, twin: Callable[[], App], client: Callable[[], Client]) -> None:
        self._twin = twin
        self._client = client
        self.instead: Instead | None = None
        """Where calls go instead of to a thread: the inline mode of tests."""
        self._lock = threading.Lock()
        self._portal: Portal | None = None
        self._forked: list[Portal] = []
        """Those of the process that this one was forked from: to let go of one would close what is its own."""

    def enqueue(self, new: NewJob, connection: Any = None) -> Enqueued:
        """As app.enqueue; with `connection` as part of its transaction."""
        if connection is not None and self.instead is None:
            return self._joining(connection, lambda client, over: client.enqueue(new, over))
        return self._call(lambda app: app.enqueue(new))

    def enqueue_many(self, news: Iterable[NewJob], connection: Any = None) -> list[Enqueued]:
        """As app.enqueue_many; with `connection` as part of its transaction."""
        return list(self.stream_many(news, connection))

    def stream_many(self, news: Iterable[NewJob], connection: Any = None) -> Iterator[Enqueued]:
        """As app.stream_many: a batch is inserted when its first row is asked for; with `connection` as part of its transaction."""
        from rxjobs.client import BATCH

        left = iter(news)
        while batch := list(islice(left, BATCH)):
            if connection is not None and self.instead is None:
                yield from self._joining(connection, lambda client, over: client.enqueue_many(batch, over))
            else:
                yield from self._call(lambda app: app.enqueue_many(batch))

    def perform(self, new: NewJob, timeout: float | None = None) -> Any:
        """As app.perform: insert a job and wait for its end."""
        return self._call(lambda app: app.perform(new, timeout))

    def migrate(self) -> list[str]:
        """As app.migrate: bring the schema up to date; needs no thread, since there is nothing to be open yet."""
        _refuse_in_a_loop()
        return asyncio.run(self._twin().migrate())

    @property
    def jobs(self) -> Any:
        """As app.jobs: get, list, count, cancel, retry, redrive, delete, result."""
        return Blocking(lambda app: app.jobs, self._call)

    @property
    def queues(self) -> Any:
        """As app.queues: list, pause, resume, scale, limit, rate, share."""
        return Blocking(lambda app: app.queues, self._call)

    @property
    def cron(self) -> Any:
        """As app.cron: list, add, pause, resume, remove, run."""
        return Blocking(lambda app: app.cron, self._call)

    @property
    def breakers(self) -> Any:
        """As app.breakers: list, open, close."""
        return Blocking(lambda app: app.breakers, self._call)

    @property
    def nodes(self) -> Any:
        """As app.nodes: list."""
        return Blocking(lambda app: app.nodes, self._call)

    @property
    def history(self) -> Any:
        """As app.history: partition, list."""
        return Blocking(lambda app: app.history, self._call)

    def close(self) -> None:
        """Close the connections and end the thread, if there is one; the next call starts another."""
        with self._lock:
            portal, self._portal = self._portal, None
        if portal is not None and portal.pid == os.getpid():
            portal.close()

    def _joining(self, connection: Any, ask: Callable[[Client, Any], Coroutine[Any, Any, T]]) -> T:
        from rxjobs.store.joining import awaited_inside, is_asynchronous

        if is_asynchronous(connection):
            raise NotOpen("app.sync takes a synchronous connection; over an asynchronous one, await app.enqueue(new, connection)")
        if (adapted := awaited_inside(connection)) is not None:
            found: T = adapted.run_async(lambda driver: ask(self._client(), driver))
            return found
        return _driven(ask(self._client(), connection))

    def _call(self, ask: Callable[[App], Awaitable[T]]) -> T:
        _refuse_in_a_loop()
        if self.instead is not None:
            return self.instead.call(ask)
        return self._open_portal().call(ask)

    def _open_portal(self) -> Portal:
        with self._lock:
            if self._portal is not None and self._portal.pid != os.getpid():
                self._forked.append(self._portal)
                self._portal = None
            if self._portal is None:
                self._portal = Portal(self._twin())
                atexit.register(self.close)
            return self._portal


class Portal:
    """A thread with an event loop in which an app is open. Raises what opening it raises."""

    def __init__(self, app: App) -> None:
        self.pid = os.getpid()
        self._app = app
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        opened: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._stay_open(opened)), name="rxjobs-sync", daemon=True)
        self._thread.start()
        opened.result()

    def call(self, ask: Callable[[App], Awaitable[T]]) -> T:
        """Have the app asked in its loop, in the context of the caller, who waits for the answer."""
        answer: Future[T] = Future()
        context, loop = copy_context(), self._loop
        assert loop is not None  # noqa: S101 - it is open

        async def work() -> None:
            try:
                answer.set_result(await ask(self._app))
            except BaseException as error:  # whoever waits for the answer raises it
                answer.set_exception(error)

        tasks: list[asyncio.Task[None]] = []
        loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(work(), context=context)))
        try:
            return answer.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
            raise

    def close(self) -> None:
        """Close the app, and end the thread."""
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(CLOSE_SECONDS)

    async def _stay_open(self, opened: Future[None]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with self._app:
                opened.set_result(None)
                await self._stop.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)


class Blocking:
    """The coroutine methods of a part of an app, as plain ones."""

    def __init__(self, part: Callable[[App], Any], call: Callable[[Callable[[App], Awaitable[Any]]], Any]) -> None:
        self._part = part
        self._call = call

    def __getattr__(self, name: str) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            async def ask(app: App) -> Any:
                answer = getattr(self._part(app), name)(*args, **kwargs)
                return await answer if isinstance(answer, Awaitable) else answer

            return self._call(ask)

        return method


def _driven(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing but the calling thread, as one over a synchronous connection does."""
    try:
        while coroutine.send(None) is None:  # others are given their turn, which there are none of
            pass
        coroutine.close()
        raise NotOpen(
            "over a synchronous connection nothing else can be awaited, and middleware around app.enqueue does: give none"
        )
    except StopIteration as end:
        result: T = end.value
        return result


def _refuse_in_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise NotOpen("app.sync would stop the event loop that runs in this thread: await app.enqueue(...) and the like there")
