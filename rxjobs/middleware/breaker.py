"""A circuit breaker per job type: pybreaker's state machine, driven by outcomes.

pybreaker guards a call while it runs, under a lock and without seeing coroutines. Here a job runs first, wherever it
likes, and its end is replayed to the state machine; who may start, and how many probes, is decided by the gate. The storage of
the state machine is what is known of a row that all nodes share, and what has happened here since.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, Protocol

from rxjobs.calls import start_of
from rxjobs.definition import Breaker
from rxjobs.events import BreakerClosed, BreakerHalfOpened, BreakerOpened, BreakerRejected, Emit
from rxjobs.failure import RemoteFailure, qualified_name
from rxjobs.job import Job
from rxjobs.log_lines import logger
from rxjobs.middleware.shared_storage import CLOSED, HALF_OPEN, OPEN, Own, SharedStorage
from rxjobs.middleware.window import Window
from rxjobs.outcome import Complete, Discard, Outcome, Retry, SharedFailure, Snooze
from rxjobs.perform import Around, Middleware, Next
from rxjobs.store.standing import Report, Standing

if TYPE_CHECKING:
    from rxjobs.middleware.machine import Machine

log = logger("rxjobs.breaker")

CROWDED = 1.0
"""Seconds that a job waits which comes while the probes are out."""
BY_HAND = 10.0
"""Seconds that a job waits which was fetched already when its breaker was opened by hand: none is fetched from then on."""
MOST_QUEUES = 100
Clock = Callable[[], float]


class Gate(Protocol):
    """Who is asked for probes, and told that there is news of a circuit, where it is shared with other nodes."""

    @property
    def is_away(self) -> bool:
        """Whether the others cannot be asked, so that each node is on its own."""

    async def permits(self, circuit: Circuit, n: int) -> int:
        """Have up to n more probes of a circuit out; gives how many."""

    def news(self, circuit: Circuit, *, at_once: bool) -> None:
        """A circuit has something to tell."""


class Circuit:
    """The circuit of one job type on this node."""

    def __init__(self, name: str, how: Breaker, emit: Emit, clock: Clock = time.monotonic) -> None:
        self.name = name
        self.how = how
        self.gate: Gate | None = None
        self.probing = 0
        """How many probes are out here, or may be begun."""
        self.permitted: set[int] = set()
        """The jobs that were fetched as probes and have not begun."""
        self.queues: set[str] = set()
        """Where its jobs are to be found, as far as it is known: not all queues in which they may be."""
        self.on_move: Callable[[Circuit], object] = lambda _: None
        # a job that cancels itself says nothing of what it depends on
        self._excluded = (*how.exclude, asyncio.CancelledError)
        self._emit = emit
        self._clock = clock
        self._opened = self._due = 0.0
        self._told_probing = 0
        self._moves = self._told_moves = 0
        self._has_moved = self._is_following = False
        self._is_spotless = True
        self._measures = how.slow is not None or how.failure_rate is not None
        self._calls = Window(how.window, clock)
        self._known_at = clock()
        self._storage = SharedStorage(name)
        self._made: Machine | None = None

    @property
    def state(self) -> str:
        """closed, open or half-open."""
        return self._storage.state

    @property
    def is_unsure(self) -> bool:
        """Whether what the shared row says would be news: it is open, or there were failures."""
        return not self._is_spotless or self._storage.known.failed > 0

    @property
    def shut_for(self) -> float:
        """Seconds until a job of the type may start; 0 when one may now."""
        state = self.state
        if self._is_spotless or state == CLOSED:
            return 0.0
        if state == OPEN:
            return BY_HAND if self._storage.known.is_by_hand else max(0.0, self._due - self._clock())
        # those that went well count too: no more are let through than it takes to close
        out = self.probing if self._is_alone else max(self.probing, self._storage.known.probing)
        return 0.0 if out + self._storage.success_counter < self.how.probes else CROWDED

    @property
    def _machine(self) -> Machine:
        if self._made is None:
            from rxjobs.middleware.machine import machine

            self._made = machine(self.how, self._storage, self.moved)
        return self._made

    @property
    def _is_alone(self) -> bool:
        return self.gate is None or self.gate.is_away

    @property
    def middleware(self) -> Middleware:
        """What wraps each run."""
        return Around(self.around)

    def around(self, call_next: Next) -> Next:
        """Snooze jobs while the circuit is open, which costs them no attempt; else run them, and learn from their ends."""

        async def run(job: Job) -> Outcome:
            if not self._is_spotless or self._measures:
                return await self._guard(job, call_next)
            outcome = await call_next(job)  # as for nearly all jobs
            if type(outcome) is not Complete or not self._is_spotless:
                self._learn(self._verdict(outcome))
                self._note(job.queue)
            return outcome

        return run

    async def _guard(self, job: Job, call_next: Next) -> Outcome:
        self._note(job.queue)
        if self.state == CLOSED:
            outcome, verdict = await self._run(job, call_next)
            self._learn(verdict)
            return outcome
        if not await self._may_probe(job):
            self._emit(BreakerRejected(job=job.told))
            return Snooze(self.shut_for or CROWDED, f"the breaker of {self.name} is {self.state}")
        return await self._probe(job, call_next)

    def _note(self, queue: str) -> None:
        if len(self.queues) < MOST_QUEUES:
            self.queues.add(queue)

    async def _run(self, job: Job, call_next: Next) -> tuple[Outcome, bool | None]:
        """A job's outcome, and what it says of what the job depends on."""
        if self.how.slow is None:
            outcome = await call_next(job)
            return outcome, self._verdict(outcome)
        start, began = start_of(job.id), self._clock()
        outcome = await call_next(job)
        ended = self._clock()
        if start is not None and start.at:  # the time that it waits for a place in its executor is not its own
            began = max(began, ended - (time.monotonic_ns() - start.at) / 1e9)
        verdict = self._verdict(outcome)
        return outcome, False if verdict and ended - began > self.how.slow else verdict

    async def _may_probe(self, job: Job) -> bool:
        """Whether a job may run as a probe; it has its place among them then."""
        if job.id in self.permitted:
            self.permitted.discard(job.id)
            return True
        if self.shut_for:
            return False
        if self.gate is not None and not self.gate.is_away:
            return await self.gate.permits(self, 1) == 1
        if self.state == OPEN:
            self._machine.half_open()
        self.probing += 1
        return True

    async def _probe(self, job: Job, call_next: Next) -> Outcome:
        verdict = None
        try:
            outcome, verdict = await self._run(job, call_next)
            return outcome
        finally:
            self.probing -= 1
            if self.state == HALF_OPEN:
                self._replay(verdict)
            self.tell(at_once=True)

    def _verdict(self, outcome: Outcome) -> bool | None:
        """Whether what a job depends on did well or not; None where its end says nothing about that."""
        match outcome:
            case Complete():
                return True
            case Retry(exception=error) | Discard(exception=error) if _is_excluded(error, self._excluded):
                return None
            case Retry(exception=SharedFailure()) | Discard(exception=SharedFailure()):
                return None
            case Retry() | Discard(exception=BaseException()):
                return False
            case _:  # a job that is snoozed, cancelled or released says nothing about what it depends on
                return None

    def _learn(self, verdict: bool | None) -> None:
        # what ends after the circuit has opened says nothing about whether it may close
        if verdict is None or self.state != CLOSED:
            return
        if self.how.failure_rate is not None:
            self._calls.add(is_good=verdict)
        self._replay(verdict)
        if not verdict and self.state == CLOSED and self._fails_too_often():
            self._machine.open()
        self.tell(at_once=self.state != CLOSED)

    def _replay(self, verdict: bool | None) -> None:
        match verdict:
            case True:
                self._machine.call(lambda: None)
                self._is_spotless = self.state == CLOSED
            case False:
                self._is_spotless = False
                with suppress(_FailedError):
                    self._machine.call(_fail)
            case None:
                pass

    def _fails_too_often(self) -> bool:
        calls, failed = self._calls.counts
        known = self._storage.known
        if self._clock() - self._known_at < self.how.window:
            calls, failed = calls + known.calls, failed + known.failed
        return self.how.failure_rate is not None and calls >= self.how.min_calls and failed >= self.how.failure_rate * calls

    def moved(self, before: str, after: str) -> None:
        """The state machine changed state."""
        self._storage.state = after  # it tells before it has written that down
        failures, open_seconds = self._storage.counter, 0.0 if before == CLOSED else max(0.0, self._clock() - self._opened)
        if after == OPEN:
            self._opened = self._clock()
            self._due = self._opened + self.how.reset_timeout
        self._calls.take()
        self._moves += 1
        self._has_moved = not self._is_following
        kind = {OPEN: BreakerOpened, HALF_OPEN: BreakerHalfOpened, CLOSED: BreakerClosed}[after]
        log.warning("the breaker of %s went from %s to %s", self.name, before, after)
        self.on_move(self)
        self._emit(kind(type=self.name, before=before, after=after, failures=failures, open_seconds=open_seconds))

    # what it shares with other nodes

    def tell(self, *, at_once: bool = False) -> None:
        """Have the others told of what has happened here, if they are to know."""
        if self.gate is not None and self._has_news:
            self.gate.news(self, at_once=at_once)

    @property
    def _has_news(self) -> bool:
        if self._has_moved or self.probing != self._told_probing or self._storage.own != Own():
            return True
        calls, failed = self._calls.counts
        return calls > 0 and (failed > 0 or self._storage.known.failed > 0)

    def take_report(self) -> Report | None:
        """What the others are to be told, which is on its way from now on; None where that is nothing."""
        if not self._has_news:
            return None
        own, (calls, failed) = self._storage.take(), self._calls.take()
        moved = self.state if self._has_moved and self.state != HALF_OPEN else None
        self._told_moves = self._moves
        opened_for = max(0.0, self._clock() - self._opened) if moved == OPEN else 0.0
        return Report(
            self._storage.known.version, moved, opened_for,
            own.failures, own.has_succeeded, own.successes, calls, failed, self.probing,
        )  # fmt: skip

    def put_back(self, report: Report) -> None:
        """A report did not arrive, or nobody knows whether it did."""
        self._storage.put_back()
        self._told_probing = -1
        if self.state == CLOSED:
            self._calls.put_back(report.calls, report.failed)

    def arrived(self, report: Report, standing: Standing) -> None:
        """A report arrived, and this is how the breaker stands for all since then."""
        self._storage.sent = Own()
        self._told_probing = report.probing
        if self._told_moves == self._moves:
            self._has_moved = False
        self.follow(standing)

    def given(self, count: int, standing: Standing) -> None:
        """So many more probes may be begun here, and this is how the breaker stands for all."""
        self.probing += count
        self._told_probing = self.probing
        self.follow(standing)

    def unsure_of_probes(self) -> None:
        """It is not known how many probes the others take for out here: have them told again."""
        self._told_probing = -1
        self.tell()

    def give_back(self, count: int = 1) -> None:
        """So many probes that might have been begun are not."""
        self.probing -= count
        self.tell(at_once=True)

    def follow(self, standing: Standing) -> None:
        """This is how the breaker stands for all nodes. What has moved here, and they have not heard of, holds until they have."""
        storage = self._storage
        if standing.version < storage.known.version or (standing.version == storage.known.version and self._has_moved):
            return
        if standing.version > storage.known.version:
            storage.forget()
        if standing.state != storage.state:
            machine, self._is_following = self._machine, True
            storage.state = standing.state
            machine.state  # noqa: B018 - it notices, and says so
            self._is_following = False
        self._has_moved = False
        storage.known = standing
        self._known_at = self._clock()
        if standing.wait is not None:
            # no longer than the whole time: the server's clock may have been set
            self._due = self._clock() + min(max(0.0, standing.wait), self.how.reset_timeout)
        self._is_spotless = self.state == CLOSED and storage.counter == 0


class _FailedError(Exception):
    """Stands for a job's failure in the state machine."""


def _fail() -> NoReturn:
    raise _FailedError


def _is_excluded(error: BaseException | None, kinds: tuple[type[BaseException], ...]) -> bool:
    if not isinstance(error, RemoteFailure):
        return isinstance(error, kinds)
    # what comes from another process is text, and can be known by the name of its class only
    return any(error.failure.type == qualified_name(kind) for kind in _with_subclasses(kinds))


def _with_subclasses(kinds: Iterable[type[BaseException]]) -> Iterator[type[BaseException]]:
    for kind in kinds:
        yield kind
        yield from _with_subclasses(kind.__subclasses__())
