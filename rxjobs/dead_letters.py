"""Dead letters: what is known of a job that is discarded, and who is told of it: `app.on_dead_letter`."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar

import msgspec

from rxjobs.checks import check_number
from rxjobs.errors import InvalidOption
from rxjobs.job import Job, State
from rxjobs.log_lines import logger
from rxjobs.outcome import Discard, Finished
from rxjobs.stopping import keep
from rxjobs.witness import Witness

log = logger("rxjobs.dead_letters")

C = TypeVar("C", bound=Callable[[Job], Any])

MOST_WAITING = 100
"""Dead letters that wait to be told to one listener; of more it is told how many there were."""
MOST_TYPES = 1000
WINDOW = 60.0
COMPLAIN_SECONDS = 60.0
"""Between two words in the log about one listener."""
FAREWELL = 2.0
"""Seconds in which what waits may still be told when a node ends."""


class DeadLetters:
    """Who is told of dead letters. None of them can hold up an outcome: each has a short line of its own, and a rate."""

    def __init__(self, read: Callable[[int], Awaitable[Job | None]], witness: Witness) -> None:
        self.witness = witness
        self._read = read
        self._listeners: list[Listener] = []

    def on(
        self,
        callback: Callable[[Job], Any] | None = None,
        /,
        *,
        webhook: str | None = None,
        per_minute: int = 10,
        timeout: float = 10.0,
    ) -> Any:
        """Have a function called with each job that this node discards, or a URL posted to, once that is written down.

        `@app.on_dead_letter`, `app.on_dead_letter(function)`, or `app.on_dead_letter(webhook="https://…")`. The job has its
        `errors` and `forensics`. At most `per_minute` of each job type are told; `job.assigns["untold"]` counts those of its type
        that were not since the last one that was. An `async def` is cancelled after `timeout` seconds, a request given up when
        nothing is heard for so long; a plain function runs in a thread. Raises InvalidOption.
        """
        check_number("app.on_dead_letter", "per_minute", per_minute, 1, 10_000)
        check_number("app.on_dead_letter", "timeout", timeout, 0.01, 3600, int | float)
        if callback is None and webhook is None:
            return lambda function: self.on(function, per_minute=per_minute, timeout=timeout)
        if webhook is not None:
            from rxjobs.webhook import Webhook  # an HTTP client, which few apps need

            url = Webhook(webhook, timeout)
            self._listeners.append(Listener(repr(url), self._read, _threaded(url.post), per_minute, None))
        if callback is None:
            return None
        if not callable(callback):
            raise InvalidOption(f"app.on_dead_letter takes a function of a job, or webhook= with a URL, not {callback!r:.100}")
        name = getattr(callback, "__qualname__", repr(callback))
        if inspect.iscoroutinefunction(callback):
            self._listeners.append(Listener(name, self._read, callback, per_minute, timeout))
        else:
            self._listeners.append(Listener(name, self._read, _threaded(callback, timeout), per_minute, None))
        return callback

    async def examined(self, finished: list[Finished]) -> list[Finished]:
        """How jobs ended, with what is known about those that are discarded."""
        if not self.witness.saw(finished):
            return finished
        try:
            known = iter(await self.witness.of([one.job for one in finished if isinstance(one.outcome, Discard)]))
        except Exception:
            log.exception("what is known of discarded jobs could not be gathered, and is left out")
            return finished
        return [_with(one, next(known)) if isinstance(one.outcome, Discard) else one for one in finished]

    async def forensics(self, jobs: Sequence[Job]) -> list[dict[str, Any] | None]:
        """What is known at this moment of jobs that are discarded, since the node that ran them is gone."""
        try:
            # of each the size of its arguments is known where its row is
            return [{name: one for name, one in known.items() if name != "args_bytes"} for known in await self.witness.of(jobs)]
        except Exception:
            log.exception("what is known of discarded jobs could not be gathered, and is left out")
            return [None] * len(jobs)

    def buried(self, jobs: Iterable[Job]) -> None:
        """These jobs were discarded, and that is written down."""
        if self._listeners:
            for job in jobs:
                known = msgspec.structs.replace(job, state=State.DISCARDED, hold=None)
                for listener in self._listeners:
                    listener.hear(known)

    async def finish(self) -> None:
        """Tell what waits, as far as a moment allows."""
        tasks = [task for listener in self._listeners for task in listener.tasks]
        if tasks:
            await asyncio.wait(tasks, timeout=FAREWELL)
        for listener in self._listeners:
            await listener.finish()
        await self.witness.finish()


class Listener:
    """One who is told: what waits for him, and how much he may be told."""

    def __init__(
        self,
        name: str,
        read: Callable[[int], Awaitable[Job | None]],
        tell: Callable[[Job], Awaitable[Any]],
        per_minute: int,
        timeout: float | None,
    ) -> None:
        self._name = name
        self._read = read
        self._tell = tell
        self._per_minute = per_minute
        self._timeout = timeout
        self._waiting: deque[Job] = deque()
        self._told: dict[str, deque[float]] = {}
        self._untold: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._complained_at: float | None = None
        self._failures = 0
        self._is_ending = False

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What it has to do."""
        return [] if self._task is None or self._task.done() else [self._task]

    def hear(self, job: Job) -> None:
        """Have it told of a job, or have that counted."""
        if len(self._waiting) >= MOST_WAITING or not self._may_hear(job.type):
            self._untold[job.type] += 1
            return
        self._waiting.append(job)
        if not self.tasks:
            # not begun at once: whoever writes outcomes down is not to wait for its first steps
            self._is_ending = False
            self._task = keep(asyncio.get_running_loop().create_task(self._work(), context=Context()))

    async def finish(self) -> None:
        """End, with what waits untold."""
        self._is_ending = True
        left = len(self._waiting)
        self._waiting.clear()
        for task in self.tasks:
            left += 1
            task.cancel()
            await asyncio.wait([task], timeout=FAREWELL)
        if left:
            log.warning("%s was not told of %d dead letters: this node ends", self._name, left)

    async def _work(self) -> None:
        while self._waiting:
            job = self._waiting.popleft()
            try:
                async with asyncio.timeout(self._timeout):
                    await self._tell(await self._found(job))
            except BaseException as error:  # a listener may raise anything, also what would end the event loop
                if self._is_ending:
                    raise
                self._complain(error)

    async def _found(self, job: Job) -> Job:
        """The job as its row has it by now, or else as it was known here."""
        row = None
        with suppress(Exception):  # the database may be away just now
            row = await self._read(job.id)
        known = job if row is None or row.state != State.DISCARDED else row
        return msgspec.structs.replace(known, assigns={"untold": self._untold.pop(job.type, 0)})

    def _may_hear(self, type_: str) -> bool:
        now, told = time.monotonic(), self._told.get(type_)
        if told is None:
            if len(self._told) >= MOST_TYPES:
                self._told.pop(next(iter(self._told)))
            told = self._told[type_] = deque(maxlen=self._per_minute)
        if len(told) == self._per_minute and told[0] > now - WINDOW:
            return False
        told.append(now)
        return True

    def _complain(self, error: BaseException) -> None:
        now, self._failures = time.monotonic(), self._failures + 1
        if self._complained_at is None or now >= self._complained_at + COMPLAIN_SECONDS:
            what = "took too long" if isinstance(error, TimeoutError) and not str(error) else f"{type(error).__name__}: {error}"
            log.error("%s could not be told of a dead letter (%d times so far): %s", self._name, self._failures, what)
            self._complained_at = now


def _with(finished: Finished, forensics: dict[str, Any]) -> Finished:
    return Finished(msgspec.structs.replace(finished.job, forensics=forensics), finished.outcome)


def _threaded(function: Callable[[Job], Any], timeout: float | None = None) -> Callable[[Job], Awaitable[Any]]:
    """A plain function as an async one, in a thread that holds up neither the event loop nor the end of the process.

    It takes as long as it takes: a thread cannot be stopped. What it gives to be awaited is cancelled after `timeout` seconds.
    """

    async def tell(job: Job) -> Any:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if not done.done():
                # a StopIteration cannot be raised into a future
                done.set_result(result) if error is None else done.set_exception(
                    RuntimeError(repr(error)) if isinstance(error, StopIteration) else error
                )

        def call() -> None:
            result, error = None, None
            try:
                result = function(job)
            except BaseException as raised:  # whoever waits for the call gets it
                error = raised
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=call, name="rxjobs-dead-letter", daemon=True).start()
        result = await done
        if not inspect.isawaitable(result):
            return result
        async with asyncio.timeout(timeout):  # a plain function may have called a coroutine function
            return await result

    return tell
