"""The one bridge: the only file that knows both Rx and asyncio.

Operators, sources and services are written against Observables and hand their coroutines to what is here; the store,
`perform` and middleware are coroutines and never see an Observable.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable
from reactivex.scheduler.eventloop import AsyncIOScheduler, AsyncIOThreadSafeScheduler

from rxjobs.errors import NotOpen
from rxjobs.log_lines import logger
from rxjobs.stopping import STOP, begin, has_begun, is_wish_to_stop, keep, leave_behind

log = logger("rxjobs")

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


LONG, BEAT = 1.0, 0.5
"""What is done again and again after waits of so many s at least is done at beats: all that is due there wakes the process once."""
EARLY = 0.005
"""By so much, s, a timer may come before its time."""
_phase = random.uniform(0, BEAT)  # noqa: S311 - so that the processes of a machine do not wake at once


class LoopScheduler(AsyncIOThreadSafeScheduler):
    """A scheduler on one event loop, which may be asked from any thread. `began` is when the loop's clock was 0, by its dates."""

    def __init__(self, loop: asyncio.AbstractEventLoop, began: datetime | None = None) -> None:
        super().__init__(loop)
        self.loop = loop
        self.thread = threading.get_ident()
        """The thread that the loop runs in."""
        self.began = datetime.now(UTC) - timedelta(seconds=loop.time()) if began is None else began
        self._context = copy_context()

    @property
    def now(self) -> datetime:
        """The time by the loop's own clock: what waits is not led astray when the wall clock is set."""
        return self.began + timedelta(seconds=self.loop.time())

    @property
    def context(self) -> Context:
        """A context as it was around the pipeline: what one job sets in its own is not seen by the next."""
        return self._context.copy()

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the loop's own thread."""
        return threading.get_ident() == self.thread

    def here(self, action: Callable[[], object]) -> None:
        """Do something on the loop: now when the caller is there, else as soon as the loop gets to it."""
        if self.loop.is_closed():
            return
        if self.is_here:
            action()
        else:
            self.loop.call_soon_threadsafe(action)

    def later(self, seconds: float, action: Callable[[], object]) -> abc.DisposableBase:
        """Do something on the loop after a while; must be called there."""
        return Disposable(self.loop.call_later(seconds, action).cancel)

    def start(
        self,
        work: Coroutine[Any, Any, T],
        then: Callable[[T], object] | None = None,
        failed: Callable[[BaseException], object] | None = None,
    ) -> asyncio.Task[None]:
        """Run a coroutine here, and hand on its result or what it raised. Cancelled, it hands on nothing."""
        # never eager: what follows a result may start the next, and a source that need not wait would recurse without end
        task = self.loop.create_task(_hand_on(work, then, failed), context=self.context)
        task.add_done_callback(lambda _: work.close())  # cancelled before it began, it would never have been awaited
        return keep(task)


def scheduler_here(scheduler: abc.SchedulerBase | None = None) -> LoopScheduler:
    """The scheduler of the loop that the given one works on, or else of the running loop; raises NotOpen without either."""
    match scheduler:
        case LoopScheduler():
            return scheduler
        case AsyncIOScheduler():
            return LoopScheduler(scheduler._loop)
        case _:
            try:
                return LoopScheduler(asyncio.get_running_loop())
            except RuntimeError:
                raise NotOpen(
                    "a pipeline was subscribed outside of an event loop; run it with app.run(pipeline), or subscribe inside "
                    "a coroutine"
                ) from None


class Awaited(Generic[A, B]):
    """Runs a coroutine for each item, at most `limit` at once; what comes out is emitted as it is ready.

    Everything happens on the scheduler's loop. Once detached, what is still running may end, and its result, like the
    items that wait, goes to `leftover`.
    """

    def __init__(
        self,
        work: Callable[[A], Coroutine[Any, Any, B]],
        limit: int,
        observer: abc.ObserverBase[B],
        scheduler: LoopScheduler,
        leftover: Callable[[A | B], object],
    ) -> None:
        self._work = work
        self.limit = limit
        """How many run at once at most."""
        self._observer = observer
        self._loop = scheduler.loop
        self._context = scheduler.context
        self._leftover = leftover
        self._waiting: deque[A] = deque()
        self._tasks: dict[asyncio.Task[None], A] = {}
        self._told: set[asyncio.Task[None]] = set()
        self._running = 0
        self._is_starting = False
        self._ended = False
        self._detached = False

    def add(self, item: A) -> None:
        """Run this item's coroutine, or let it wait for its turn."""
        if self._detached:
            self._leftover(item)
        elif self._running < self.limit:
            self._start(item)
        else:
            self._waiting.append(item)

    def end(self) -> None:
        """No more items will come: complete once the last is out."""
        self._ended = True
        self._complete_if_idle()

    def detach(self, *, cancel: bool) -> None:
        """Emit nothing from now on; with `cancel`, also stop what is running."""
        self._detached = True
        self.let_go_of_waiting(lambda _: True)
        if cancel:
            self.stop()

    def stop(self, which: Callable[[A], bool] = lambda _: True) -> None:
        """Ask what runs for such items to stop, once, and let go of those that wait."""
        self.let_go_of_waiting(which)
        was_running = self._running
        for task, item in tuple(self._tasks.items()):
            if task not in self._told and which(item):
                self._told.add(task)
                task.add_done_callback(self._told.discard)
                if not has_begun(task):
                    self._running -= 1
                    self._forget(task)
                    self._leftover(item)
                task.cancel(STOP)
        if self._running < was_running:
            self._start_waiting()
            self._complete_if_idle()

    @property
    def running(self) -> list[A]:
        """The items whose coroutines have not ended."""
        return list(self._tasks.values())

    @property
    def waiting(self) -> list[A]:
        """The items that wait for their turn."""
        return list(self._waiting)

    def leave_behind(self) -> None:
        """Wait no longer for what runs."""
        for task in self._tasks:
            leave_behind(task)

    def let_go_of_waiting(self, which: Callable[[A], bool]) -> None:
        """Let go of such items as wait for their turn."""
        for _ in range(len(self._waiting)):
            item = self._waiting.popleft()
            if which(item):
                self._leftover(item)
            else:
                self._waiting.append(item)

    def _start(self, item: A) -> None:
        self._running += 1
        task = begin(self._loop, self._run(item), self._context.copy())
        if not task.done():
            self._tasks[task] = item
            _working.add(self)

    async def _run(self, item: A) -> None:
        try:
            result = await self._work(item)
        except BaseException as error:  # only broken machinery raises: a job's own failure is a result
            self._running -= 1
            self._forget(asyncio.current_task())
            self._leftover(item)
            if not isinstance(error, asyncio.CancelledError):
                self._break(error)
        else:
            self._running -= 1
            if self._tasks:
                self._forget(asyncio.current_task())
            self._hand_out(result)
        if self._waiting:
            self._start_waiting()
        if self._ended:
            self._complete_if_idle()

    def _forget(self, task: asyncio.Task[None] | None) -> None:
        if task in self._tasks:  # one that never waited is not
            del self._tasks[task]
            if not self._tasks:
                _working.discard(self)

    def _hand_out(self, result: B) -> None:
        if self._detached:
            self._leftover(result)
            return
        try:
            self._observer.on_next(result)
        except Exception as error:
            self._break(error)

    def _start_waiting(self) -> None:
        # the outermost call starts them all: a task that is done at once would start the next one inside itself, and so on
        if self._is_starting:
            return
        self._is_starting = True
        try:
            while self._waiting and self._running < self.limit:
                self._start(self._waiting.popleft())
        finally:
            self._is_starting = False

    def _break(self, error: BaseException) -> None:
        if not self._detached:
            self._observer.on_error(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def _complete_if_idle(self) -> None:
        if self._ended and not self._running and not self._waiting and not self._detached:
            self._observer.on_completed()


_working: set[Awaited[Any, Any]] = set()
"""Those whose tasks run: asyncio itself holds tasks weakly."""


def conflate_map(work: Callable[[list[A]], Coroutine[Any, Any, list[B]]]) -> Callable[[Observable[A]], Observable[B]]:
    """Run a coroutine for lists of items, one at a time: what comes meanwhile goes into the next. Emits what is in the results."""

    def operator(source: Observable[A]) -> Observable[B]:
        def subscribe(observer: abc.ObserverBase[B], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            here = scheduler_here(scheduler)
            gathered: list[A] = []
            working: list[asyncio.Task[None]] = []
            ended = False

            def add(item: A) -> None:
                gathered.append(item)
                if not working:
                    # a tick later, so that what comes in one burst goes into one list
                    working.append(here.loop.create_task(work_off()))

            async def work_off() -> None:
                try:
                    while gathered:
                        batch = gathered.copy()
                        gathered.clear()
                        for result in await work(batch):
                            observer.on_next(result)
                except Exception as error:
                    observer.on_error(error)
                working.clear()
                if ended:
                    observer.on_completed()

            def end() -> None:
                nonlocal ended
                ended = True
                if not working:
                    observer.on_completed()

            upstream = source.subscribe(
                lambda item: here.here(lambda: add(item)),
                lambda error: here.here(lambda: observer.on_error(error)),
                lambda: here.here(end),
                scheduler=here,
            )
            return CompositeDisposable(upstream, Disposable(lambda: here.here(lambda: [task.cancel() for task in working])))

        return Observable(subscribe)

    return operator


def every(seconds: Callable[[], float], work: Callable[[], Coroutine[Any, Any, T]], *, exactly: bool = False) -> Observable[T]:
    """What a coroutine returns, over and over: it is run at once, and again so many seconds after it has ended.

    Or, unless it is to be exactly then, a little earlier, at the same moment as others: a process that wakes costs more than
    most of what it wakes for.
    """

    def subscribe(observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        async def repeat() -> None:
            time = asyncio.get_running_loop().time
            while True:
                try:
                    observer.on_next(await work())
                except Exception as error:
                    observer.on_error(error)
                    return
                wait = seconds()
                await asyncio.sleep(wait if exactly else _until_others(time(), wait))

        task = scheduler_here(scheduler).start(repeat())
        return Disposable(lambda: _cancel(task))

    return Observable(subscribe)


def _until_others(now: float, seconds: float) -> float:
    """How long to wait, from an instant of a loop on, where about so many seconds are asked for: long waits end at beats."""
    return seconds if seconds < LONG else (now + seconds + EARLY - _phase) // BEAT * BEAT + _phase - now


async def let_others() -> None:
    """Let what else waits on the loop have its turn."""
    await asyncio.sleep(0)


def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()


async def _hand_on(
    work: Coroutine[Any, Any, T],
    then: Callable[[T], object] | None,
    failed: Callable[[BaseException], object] | None,
) -> None:
    try:
        result = await work
    except BaseException as error:
        if is_wish_to_stop(error):
            raise
        if failed is None:
            log.exception("something that rxjobs did in the background failed")
        else:
            failed(error)
    else:
        if then is not None:
            _tell(then, result)


def _tell(then: Callable[[T], object], result: T) -> None:
    try:
        then(result)
    except Exception:
        log.exception("what rxjobs does with a result failed")
