"""Run all jobs that are ready to their end, as the app would: `drain`."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from reactivex.abc import DisposableBase
from reactivex.observer import Observer

from rxjobs.app import App
from rxjobs.awaiting import LoopScheduler
from rxjobs.declared import Pipeline
from rxjobs.demand import Demand
from rxjobs.errors import NotOpen, UnknownQueue
from rxjobs.hold import Keeper
from rxjobs.job import Job
from rxjobs.ledger import Ledger
from rxjobs.operators.stage import on_the_loop
from rxjobs.outcome import Finished
from rxjobs.runner import reach_end
from rxjobs.scope import Scope, within
from rxjobs.source import Source
from rxjobs.sources.memory import MemorySource
from rxjobs.sources.postgres import PostgresSource
from rxjobs.store.statements import with_schema
from rxjobs.testing.under_test import app_for

LATER = """state::text = ANY ($1::text[]) AND ($2::text[] IS NULL OR queue = ANY ($2::text[]))"""
DUE = f"scheduled_at <= now() AND {LATER}"
NEXT = f"{LATER} AND scheduled_at = (SELECT min(scheduled_at) FROM {{schema}}.live_jobs WHERE {LATER})"  # noqa: S608 - our own
"""Which of the jobs that wait are to be run: those whose time has come, or those that are next."""
LOOK = 0.01
"""Seconds between looks whether there is more to do, while jobs run."""
LAST_SECONDS = 60.0
"""For which the node lives longer than it may take: what it was doing at the end is written down."""
SETTLED = 3
"""So many looks in a row must find nothing that runs, and nothing that has moved: then what is held waits for others to join it."""


async def drain(
    app: App | None = None,
    *,
    queue: str | Iterable[str] | None = None,
    scheduled: bool = False,
    retries: bool = False,
    timeout: float = 30.0,  # noqa: ASYNC109 - of the whole of it, told with what runs
) -> Counter[str]:
    """Run the jobs that are ready, and those that they enqueue, to the end; gives how many attempts ended how: `{"complete": 3}`.

    What runs them are the app's pipelines, those declared or one for each queue, on its real database; with `queue` only those
    jobs. Jobs for later are left: with `scheduled` they are run too, those that were snoozed included, in the order of their time,
    as if it had come; with `retries` those that failed are tried again, until they are done or discarded.

    Without `app`, it is the one under test. Raises TimeoutError after so many seconds, with what did not end.
    """
    app = app_for(app)
    queues = None if queue is None else {queue} if isinstance(queue, str) else set(queue)
    later = [state for state, wanted in (("scheduled", scheduled), ("retryable", retries)) if wanted]
    async with app, _a_node(app, timeout):
        draining = Draining(app, queues, timeout)
        try:
            while True:
                await _have_ready(app, DUE, ["scheduled", "retryable"], queues)
                if not await draining.has_run() and not await _have_ready(app, NEXT, later, queues):
                    return draining.ended
        finally:
            for executor in {*app.executors(), *draining.executors}:
                await executor.close()


@asynccontextmanager
async def _a_node(app: App, seconds: float) -> AsyncIterator[None]:
    """Have the app claim jobs, as only a node with a lease may."""
    if any(str(node.id) == str(app.id) and node.gone_at is None for node in await app.nodes.list()):
        raise NotOpen("this app runs already, and its jobs with it: drain is for one that is only open, or not even that")
    await app.store.take_lease(app.id, app.label, os.getpid(), seconds + LAST_SECONDS)
    try:
        yield
    finally:
        await app.store.leave(app.id)


def drain_sync(
    app: App | None = None,
    *,
    queue: str | Iterable[str] | None = None,
    scheduled: bool = False,
    retries: bool = False,
    timeout: float = 30.0,
) -> Counter[str]:
    """As drain, for tests without an event loop: coroutines run in one that lives as long as this call."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(drain(app, queue=queue, scheduled=scheduled, retries=retries, timeout=timeout))
    raise NotOpen("drain_sync would stop the event loop that runs in this thread: await drain(...) there")


class Draining:
    """Rounds of the app's pipelines: each is stopped when nothing is ready, so that what gathers in a buffer goes on too."""

    def __init__(self, app: App, queues: set[str] | None, timeout: float) -> None:
        self.ended: Counter[str] = Counter()
        self.executors: set[Any] = set()
        self._app = app
        self._queues = queues
        self._timeout = timeout
        self._until = asyncio.get_running_loop().time() + timeout
        self._pipelines = app.chosen()

    async def has_run(self) -> bool:
        """One round; gives whether there was anything to do."""
        rounds = [_Round(pipeline, self._app, self._queues, self.ended) for pipeline in self._pipelines]
        try:
            for one in rounds:
                one.start()
            self._check_queues(rounds)
            await self._until_idle(rounds)
            for one in rounds:
                one.scope.stop()
            while not all(one.is_done for one in rounds):
                self._check(rounds)
                await asyncio.sleep(LOOK)
        finally:
            for one in rounds:
                one.close()
                self.executors |= one.scope.executors
        return any(one.scope.taken for one in rounds)

    async def _until_idle(self, rounds: Sequence[_Round]) -> None:
        still, before = 0, -1
        while still < SETTLED:
            for one in rounds:
                one.ask()
            while any(one.scope.is_fetching for one in rounds):
                self._check(rounds)
                await asyncio.sleep(LOOK / 10)
            self._check(rounds)
            moved = sum(one.scope.taken for one in rounds) + self.ended.total()
            is_quiet = moved == before and not any(one.scope.running for one in rounds)
            if is_quiet and not any(one.scope.held_ids for one in rounds):
                return
            still, before = (still + 1 if is_quiet else 0), moved
            await asyncio.sleep(LOOK if any(one.scope.held_ids for one in rounds) else 0)

    def _check_queues(self, rounds: Sequence[_Round]) -> None:
        known = {queue for one in rounds for queue in one.scope.queues}
        if self._queues is not None and (missing := sorted(self._queues - known)):
            raise UnknownQueue(
                f"no pipeline of this app takes jobs of the queue {', '.join(missing)}; they take those of "
                f"{', '.join(sorted(known)) or 'none'}"
            )

    def _check(self, rounds: Sequence[_Round]) -> None:
        for one in rounds:
            if one.error is not None:
                raise one.error
        if asyncio.get_running_loop().time() > self._until:
            jobs = [f"{job.id} ({job.type})" for one in rounds for job in one.scope.running]
            raise TimeoutError(
                f"drain has not come to an end within {self._timeout:g} s; {self.ended.total()} attempts have ended, and these "
                f"jobs run: {', '.join(jobs[:20]) or 'none'}"
            )


class _Round:
    """One pipeline, from its start to its end."""

    def __init__(self, pipeline: Pipeline, app: App, queues: set[str] | None, ended: Counter[str]) -> None:
        self.scope = _Surroundings(LoopScheduler(asyncio.get_running_loop()), app, queues, ended)
        self.error: Exception | None = None
        self._stream = pipeline.stream
        self._has_ended = False
        self._subscription: DisposableBase | None = None

    def start(self) -> None:
        observer: Observer[Any] = Observer(on_error=self._end, on_completed=self._end)
        with within(self.scope):
            self._subscription = self._stream.subscribe(
                on_the_loop(observer, self.scope.scheduler, reach_end), scheduler=self.scope.scheduler
            )

    def ask(self) -> None:
        """Have every source asked, whatever it gave last."""
        for ledger in self.scope.ledgers:
            ledger.tell_room(must_ask=True)

    @property
    def is_done(self) -> bool:
        return self._has_ended and not self.scope.held_ids and not self.scope.is_fetching

    def _end(self, error: Exception | None = None) -> None:
        self._has_ended, self.error = True, error

    def close(self) -> None:
        self.scope.kill()
        if self._subscription is not None:
            self._subscription.dispose()
        self.scope.close()


class _Surroundings(Scope):
    """Those of a pipeline whose sources give jobs of the wanted queues, and nothing from anywhere else."""

    def __init__(self, scheduler: LoopScheduler, app: App, queues: set[str] | None, ended: Counter[str]) -> None:
        super().__init__(scheduler, app.emit, supervised=False)
        self.queues: set[str] = set()
        """Whose jobs its sources give, or would."""
        self.taken = 0
        self._wanted = queues
        self._ended = ended
        self._followed: set[int] = set()
        self._silent: dict[Hashable, MemorySource] = {}

    def ledger(self, key: Hashable, source: Source, demand: Callable[[], Demand]) -> Ledger:
        if isinstance(source, PostgresSource):
            self.queues.add(source.queue)
        if not isinstance(source, PostgresSource) or (self._wanted is not None and source.queue not in self._wanted):
            source = self._silent.setdefault(key, MemorySource())
        ledger = super().ledger(key, source, demand)
        if id(ledger) not in self._followed:
            self._followed.add(id(ledger))
            ledger.watchers = (*ledger.watchers, self)
        return ledger

    def claimed(self, keeper: Keeper, job: Job) -> None:
        """A job was taken."""
        self.taken += 1

    def ended(self, keeper: Keeper, finished: Finished) -> None:
        """An attempt has ended, and is written down next."""
        self._ended[type(finished.outcome).__name__.lower()] += 1


async def _have_ready(app: App, which: str, states: Sequence[str], queues: set[str] | None) -> bool:
    """Make jobs available that wait for their time; gives whether there were any."""
    if not states:
        return False
    rows = await app.store.database.fetch(
        with_schema(
            "UPDATE {schema}.live_jobs SET state = 'available', scheduled_at = least(scheduled_at, now()) "  # noqa: S608 - our own
            f"WHERE {which} RETURNING id",
            app.settings.schema,
        ),
        list(states),
        None if queues is None else sorted(queues),
    )
    return bool(rows)
