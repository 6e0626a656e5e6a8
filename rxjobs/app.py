"""The app: job types, a client, pipelines and settings put together."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload
from uuid import uuid4

from reactivex import Observable
from reactivex.subject import Subject

from rxjobs import settings as settings_
from rxjobs.autoscaling import Autoscale
from rxjobs.backoff import Backoff
from rxjobs.callables import Callables
from rxjobs.calls import Executor, checked_executor
from rxjobs.codec import Codec, checked
from rxjobs.declared import CONCURRENCY, Pipeline, named
from rxjobs.definition import DEFAULT_BREAKER, Breaker, Definition, NewJob, Options, options_of
from rxjobs.enqueued import Enqueued, Following
from rxjobs.errors import DuplicateJobType, InvalidOption, NotOpen, UnknownJobType, UnknownQueue
from rxjobs.event_stream import EventStream
from rxjobs.events import Emit
from rxjobs.executors.in_threads import in_threads
from rxjobs.executors.on_loop import on_loop
from rxjobs.facets import Facets
from rxjobs.job import Job
from rxjobs.middleware.circuits import Circuits
from rxjobs.middleware.stack import Middleware, Stack
from rxjobs.perform import Middleware as Wrap
from rxjobs.sync import Sync
from rxjobs.telemetry.providers import Mode, Telemetry
from rxjobs.telemetry.signals import Signals
from rxjobs.unique import Unique

if TYPE_CHECKING:
    from rxjobs.client import Around, Client
    from rxjobs.runner import Running
    from rxjobs.store.store import Store

P = ParamSpec("P")
R = TypeVar("R")
THREADS = 64


class App(Facets):
    """Job types, the client that enqueues them, and the pipelines that run them.

    `dsn` is a PostgreSQL DSN; without one RXJOBS_DSN is taken, and without that the embedded server. The other settings are
    those of rxjobs.settings.Settings. `async with app:` opens the client side; `app.run()` also runs pipelines. `telemetry`
    says where spans and metrics go, if not to the process's own providers; `codec` encrypts arguments; `threads` run functions.
    """

    def __init__(
        self, dsn: str | None = None, *, telemetry: Telemetry | None = None, codec: Codec | None = None,
        callables: Iterable[str] = (), threads: Executor | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        self.settings = settings_.load({"dsn": dsn, **settings})
        self.codec = checked(codec)
        self.events = EventStream()
        self.definitions: dict[str, Definition[..., Any]] = {}
        self.id, self._id_is_for = uuid4(), os.getpid()
        self.woken: Subject[str | None] = Subject()
        self.queues_taken: set[str] = set()
        self._telemetry = telemetry or Telemetry()
        self.sync = Sync(self._twin, self.client)
        self._signals = Signals(self._telemetry, self.definitions, self.queues_taken, self.events)
        self.circuits = Circuits(self.events.emit)
        self._middleware = Stack(self._signals, self.circuits, self.events)
        self._loop_executor: Executor = on_loop()
        self._thread_executor = checked_executor("threads", in_threads(THREADS) if threads is None else threads)
        self._callables = Callables(callables, self.job)
        self._pipelines: list[Pipeline] = []
        self._dsn: str | None = None
        self._store: Store | None = None
        self._client: Client | None = None
        self.client_instead: Client | None = None
        self._opened_in: asyncio.AbstractEventLoop | None = None
        self._openings, self._is_running, self._ends_process = 0, False, False
        self._running: Running | None = None
        self._opening: asyncio.Task[None] | None = None
        self._stack = AsyncExitStack()

    # what a user declares

    @overload
    def job(self, function: Callable[P, R], /) -> Definition[P, R]: ...

    @overload
    def job(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int = 20,
        timeout: float | None = None,
        backoff: Backoff | None = None,
        executor: Executor | None = None,
        unique: Unique | None = None,
        breaker: Breaker | None = DEFAULT_BREAKER,
        record: bool = False,
        tags: Iterable[str] = (),
        meta: Mapping[str, Any] | None = None,
        trace: Mode | None = None,
    ) -> Callable[[Callable[P, R]], Definition[P, R]]: ...

    def job(self, *functions: Any, **options: Any) -> Any:
        """Declare a job type: `@app.job` or `@app.job(queue="mail", timeout=30)`.

        `timeout` is in seconds; `backoff` is `attempt, error -> seconds`, by default Oban's; `executor` is by default the event
        loop for `async def`, a thread for `def`; `trace` is as in rj.Telemetry: how attempts belong to their enqueue's trace.
        """

        def declare(function: Callable[..., Any]) -> Definition[..., Any]:
            if not callable(function):
                raise InvalidOption(f"@app.job declares a function, not {function!r}; its options are given by name")
            return self._declare(function, options_of(function, **options))

        return declare(*functions) if functions else declare

    def use(self, middleware: Middleware | Wrap) -> None:
        """Have every run and every insert wrapped, in order: an rj.Middleware, or `async def wrap(job, call_next)` around runs."""
        self._middleware.use(middleware)

    def source(
        self,
        queue: str,
        *,
        max_demand: int | Autoscale = 2 * CONCURRENCY,
        min_demand: int | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> Observable[Job]:
        """The jobs of a queue as an Observable: `rj.pull(rj.PostgresSource(...))`."""
        from rxjobs.sources.postgres import PostgresSource
        from rxjobs.sources.pull import pull

        source = PostgresSource(self, queue, where)
        self.queues_taken.add(queue)
        return pull(source, max_demand=max_demand, min_demand=min_demand)

    def pipeline(self, stream: Observable[Any], name: str | None = None) -> Observable[Any]:
        """Declare a pipeline, to be run by `app.run()` and `rxjobs run`."""
        self._pipelines.append(named(stream, name or f"pipeline-{len(self._pipelines) + 1}"))
        return stream

    def definition(self, name: str) -> Definition[..., Any]:
        """The job type of a name; raises UnknownJobType."""
        if (found := self.definitions.get(name)) is not None:
            return found
        known = ", ".join(sorted(self.definitions)) or "none"
        raise UnknownJobType(f"there is no job type {name!r} in this app; it has {known}")

    # the client side

    async def enqueue(self, new: NewJob, connection: Any = None) -> Enqueued:
        """Insert a job; with `connection` (asyncpg) as part of its transaction, else committed on return."""
        return await self.client_here().enqueue(new, connection)

    async def perform(self, new: NewJob, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - as asyncio.wait_for has it
        """Insert a job and wait for its end; gives and raises what `Enqueued.result` does."""
        return await (await self.enqueue(new)).result(timeout)

    async def enqueue_many(self, news: Iterable[NewJob], connection: Any = None) -> list[Enqueued]:
        """Insert jobs in batches of a thousand, each committed by itself unless a connection is given; in order."""
        return await self.client_here().enqueue_many(news, connection)

    def stream_many(self, news: Iterable[NewJob], connection: Any = None) -> AsyncIterator[Enqueued]:
        """As enqueue_many for any number of jobs, giving each row as soon as its batch is inserted."""
        return self.client_here().stream_many(news, connection)

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; gives the names of the migrations that ran."""
        from rxjobs.store.migrate import migrate_at

        return await migrate_at(self._dsn or self.settings.dsn, self.settings.schema)

    @property
    def dsn(self) -> str:
        """How others reach the database of this app, once it is open."""
        if self._dsn is None:
            raise NotOpen("app.dsn is known once the app is open: async with app: …")
        return self._dsn

    @property
    def store(self) -> Store:
        """The statements of this app's schema, once it is open."""
        self.client_here()
        if self._store is None:
            raise NotOpen("there is no database while jobs run inline: look at what inline gives, or use drain instead")
        return self._store

    async def __aenter__(self) -> App:
        loop = asyncio.get_running_loop()
        if self._openings and self._opened_in is not loop:
            raise NotOpen("this app is open in another event loop; give each loop an App of its own, or close it there first")
        if not self._openings:
            self._opened_in = loop
            self._opening = loop.create_task(self._open())
        self._openings += 1
        assert self._opening is not None  # noqa: S101 - it is there while the app is open
        try:
            await asyncio.shield(self._opening)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._openings -= 1
        if not self._openings:
            stack, self._stack = self._stack, AsyncExitStack()
            await stack.aclose()
            self._dsn = self._store = self._client = self._opened_in = self._opening = None

    # running

    def run(self, *pipelines: Observable[Any] | Pipeline) -> None:
        """Run these pipelines, or those declared, or one for each queue of the job types, until SIGTERM, SIGINT or their end.

        A signal drains: fetching stops, jobs in flight get `shutdown_grace` seconds, the rest are released. A second one exits
        at once. Exits with code 1 when a pipeline broke too often, and with 75, for a fresh start, when too many jobs do not stop
        that were to, or when it takes more than `max_memory`.

        A job whose code does not stop, such as a plain function in a thread, is released too, for a moment longer than the process
        needs to end: it ends at once when all else is done, and does not come back from here.
        """
        from rxjobs.serving import serve

        self._ends_process = True
        try:
            serve(lambda: self.running(*pipelines))
        finally:
            self._ends_process = False

    @asynccontextmanager
    async def running(self, *pipelines: Observable[Any] | Pipeline) -> AsyncIterator[Running]:
        """Run pipelines beside what the body does, in the loop it does it in; drained on leaving. Installs no signal handlers.

        A job whose code does not stop in time, such as a plain function in a thread, is not released. It runs on, but its outcome
        is not written down any more: its lease runs out, and then others may take it, though it may still run here.
        """
        chosen = self.chosen(pipelines)
        if self._is_running:
            raise NotOpen("this app runs already: give all its pipelines to one app.running(...), or make a second App")
        self._is_running = True
        if os.getpid() != self._id_is_for:  # new at every start, also in a fork: what one has claimed is not the next one's
            self.id = uuid4()
        self._id_is_for = 0
        try:
            async with self, AsyncExitStack() as stack:
                with self._signals.node_starts():
                    running = await self._start(chosen, stack)
                try:
                    yield running
                finally:
                    await running.stop(self.settings.shutdown_grace, ends_process=self._ends_process)
        finally:
            self._is_running = False
            self._running = None

    def default_pipelines(self, concurrency: Mapping[str, int] | None = None) -> list[Pipeline]:
        """One pipeline for each queue that a job type names, or for each queue of the mapping; raises UnknownQueue."""
        from rxjobs.pipeline import default_pipeline

        queues = sorted({definition.how.queue for definition in self.definitions.values()})
        if concurrency is None:
            concurrency = dict.fromkeys(queues, CONCURRENCY)
        for queue in concurrency:
            if queue not in queues:
                raise UnknownQueue(f"no job type of this app names the queue {queue!r}; there are {', '.join(queues) or 'none'}")
        return [Pipeline(one, default_pipeline(self.source(one, max_demand=2 * n), n)) for one, n in concurrency.items()]

    # what a source asks of the process it runs in

    @property
    def label(self) -> str:
        """This node's label, or else its id."""
        return self.settings.node or str(self.id)

    @property
    def poll_seconds(self) -> float:
        """How long a lost wake-up can cost, seconds."""
        return self.settings.poll_seconds

    @property
    def max_args_bytes(self) -> int:
        """The most that a job's arguments may take as JSON."""
        return self.settings.max_args_bytes

    @property
    def emit(self) -> Emit:
        """Where events go."""
        return self.events.emit

    def startable(self, names: Iterable[str], *, as_probes: bool = False) -> list[str]:
        """Those job types that are known here and whose breaker is closed, or may be probed; none while this node has no lease."""
        if self._running is not None and self._running.is_cut_off:
            return []
        choose = self.circuits.due if as_probes else self.circuits.startable
        return choose(name for name in names if name in self.definitions)

    # inside

    def client(self, store: Store | None = None, jobs: Following | None = None, innermost: Sequence[Around] = ()) -> Client:
        """What enqueues for this app, and wraps that as the app does: into a store, or only over what connections callers have."""
        from rxjobs.client import Client
        from rxjobs.store.database import Database
        from rxjobs.store.store import Store

        how, around = self.settings, self._middleware.around_inserts
        store = store or Store(Database(""), how.schema, notify=how.notify, max_args_bytes=how.max_args_bytes)
        around = [*around, *innermost] if innermost else around
        return Client(store, self.events, around, jobs, self.poll_seconds, self._callables.made)

    def _twin(self) -> App:
        """Another app for the same jobs, to be open in another event loop."""
        has: Any = {"telemetry": self._telemetry, "codec": self.codec, "callables": self._callables.patterns}
        twin = App(**has, **dataclasses.asdict(self.settings))
        twin.definitions.update(self.definitions)
        twin.events, twin._middleware.around_inserts = self.events, self._middleware.around_inserts
        return twin

    def _declare(self, function: Callable[..., Any], options: Options) -> Definition[..., Any]:
        if options.name in self.definitions:
            raise DuplicateJobType(f"two job types are named {options.name!r}; give one of them another name: @app.job(name=...)")
        definition: Definition[..., Any] = Definition(function, self, options)
        own = self._loop_executor if definition.is_async else self._thread_executor
        self._middleware.add(definition, options.executor or own)
        self.definitions[options.name] = definition
        return definition

    def chosen(self, pipelines: Sequence[Observable[Any] | Pipeline] = ()) -> list[Pipeline]:
        """These pipelines, or those declared, or one for each queue of the job types: what `run` runs."""
        chosen = [named(stream, f"pipeline-{place}") for place, stream in enumerate(pipelines, 1)]
        if not chosen and self._pipelines:
            self.queues.warn_of_those_that_wait()
        if chosen := chosen or self._pipelines or self.default_pipelines():
            return chosen
        raise InvalidOption("there is nothing to run: this app has no job type and no pipeline; declare one with @app.job")

    async def _open(self) -> None:
        from rxjobs.store.database import Database
        from rxjobs.store.migrate import make_ready
        from rxjobs.store.served import is_embedded, served
        from rxjobs.store.store import Store

        stack, how = self._stack, self.settings
        self._dsn = await stack.enter_async_context(served(how.dsn))
        self._signals.opened(self._dsn, str(self.id))
        database = Database(self._dsn)
        await database.open()
        stack.push_async_callback(database.close)
        await make_ready(database, how.schema, migrates=how.migrate or is_embedded(how.dsn))
        self._store = Store(database, how.schema, notify=how.notify, max_args_bytes=how.max_args_bytes)
        self._client = self.client(self._store, self.jobs)
        stack.push_async_callback(self._client.finish)

    def client_here(self) -> Client:
        if self.client_instead:
            return self.client_instead
        if self._client is None:
            raise NotOpen("the app is not open: enqueue inside `async with app:`, or while app.run() or app.running() is on")
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is not self._opened_in:
            raise NotOpen("this app is open in another event loop than the one that uses it now; open an App of its own there")
        return self._client

    async def _start(self, pipelines: Sequence[Pipeline], stack: AsyncExitStack) -> Running:
        from rxjobs.awaiting import LoopScheduler
        from rxjobs.node import Node
        from rxjobs.runner import Running

        how, scheduler = self.settings, LoopScheduler(asyncio.get_running_loop())
        running = Running(
            pipelines, scheduler, self.events,
            max_restarts=how.max_restarts, restart_window=how.restart_window, max_memory=how.max_memory, executors=self.executors,
        )  # fmt: skip
        node = Node(
            self.id, how, self.store, self.events, self._signals.metrics, self.definitions, self.looks, self.cron, self.breakers,
            self.dead_letters,
        )  # fmt: skip
        await node.join(stack, scheduler, self.woken.on_next, running)
        self._running = running
        self.circuits.share(self.store, self.id, self.looks.wake, stack)
        stack.push_async_callback(running.close_executors)
        running.start()
        return running

    def executors(self) -> set[Executor]:
        """What its job types' functions run on that may have to be closed."""
        return {self._thread_executor, *(one.how.executor for one in self.definitions.values() if one.how.executor is not None)}
