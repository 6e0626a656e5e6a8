"""A circuit breaker per job type: pybreaker's state machine, driven by outcomes.

pybreaker guards a call while it runs, under a lock and without seeing coroutines. Here a job runs first, wherever it
likes, and its end is replayed to the state machine; who may start, and how many probes, is decided by the gate.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NoReturn

import pybreaker

from rxjobs.definition import Breaker
from rxjobs.events import BreakerClosed, BreakerHalfOpened, BreakerOpened, BreakerRejected, Emit
from rxjobs.failure import RemoteFailure, qualified_name
from rxjobs.job import Job
from rxjobs.outcome import Complete, Discard, Outcome, Retry, Snooze
from rxjobs.perform import Middleware, Next

log = logging.getLogger("rxjobs.breaker")

CROWDED = 1.0
"""Seconds that a job waits which comes while the probes are out."""
Clock = Callable[[], float]


class Circuit:
    """The circuit of one job type on this node."""

    def __init__(self, name: str, how: Breaker, emit: Emit, clock: Clock = time.monotonic) -> None:
        self.name = name
        self._how = how
        # a job that cancels itself says nothing of what it depends on
        self._excluded = (*how.exclude, asyncio.CancelledError)
        self._emit = emit
        self._clock = clock
        self._opened = 0.0
        self._probing = 0
        self._is_spotless = True
        self._machine = pybreaker.CircuitBreaker(
            fail_max=how.fail_max,
            reset_timeout=how.reset_timeout,
            success_threshold=how.probes,
            listeners=[_Teller(self)],
            name=name,
            throw_new_error_on_trip=False,
        )

    @property
    def state(self) -> str:
        """closed, open or half-open."""
        return str(self._machine.current_state)

    @property
    def shut_for(self) -> float:
        """Seconds until a job of the type may start; 0 when one may now."""
        if self._is_spotless or self.state == pybreaker.STATE_CLOSED:
            return 0.0
        if self.state == pybreaker.STATE_OPEN:
            return max(0.0, self._opened + self._how.reset_timeout - self._clock())
        # those that went well count too: no more are let through than it takes to close
        return 0.0 if self._probing + self._machine.success_counter < self._how.probes else CROWDED

    async def middleware(self, job: Job, call_next: Next) -> Outcome:
        """Snooze the job while the circuit is open, which costs it no attempt; else run it, and learn from its end."""
        if self._is_spotless:  # as it is for nearly all jobs
            outcome = await call_next(job)
            if type(outcome) is not Complete or not self._is_spotless:
                self._learn(outcome)
            return outcome
        wait = self.shut_for
        if wait:
            self._emit(BreakerRejected(job=job.told))
            return Snooze(wait, f"the breaker of {self.name} is {self.state}")
        if self.state == pybreaker.STATE_CLOSED:
            outcome = await call_next(job)
            self._learn(outcome)
            return outcome
        return await self._probe(job, call_next)

    async def _probe(self, job: Job, call_next: Next) -> Outcome:
        if self.state == pybreaker.STATE_OPEN:
            self._machine.half_open()
        self._probing += 1
        try:
            outcome = await call_next(job)
        finally:
            self._probing -= 1
        if self.state == pybreaker.STATE_HALF_OPEN:
            self._replay(outcome)
        return outcome

    def _learn(self, outcome: Outcome) -> None:
        # what ends after the circuit has opened says nothing about whether it may close
        if self.state == pybreaker.STATE_CLOSED:
            self._replay(outcome)

    def _replay(self, outcome: Outcome) -> None:
        match outcome:
            case Complete():
                self._machine.call(lambda: None)
                self._is_spotless = self.state == pybreaker.STATE_CLOSED
            case Retry(exception=error) | Discard(exception=error) if _is_excluded(error, self._excluded):
                pass
            case Retry() | Discard(exception=BaseException()):
                self._is_spotless = False
                with suppress(_FailedError):
                    self._machine.call(_fail)
            case _:  # a job that is snoozed, cancelled or released says nothing about what it depends on
                pass

    def moved(self, before: str, after: str) -> None:
        """The state machine changed state."""
        if after == pybreaker.STATE_OPEN:
            self._opened = self._clock()
        kind = {
            pybreaker.STATE_OPEN: BreakerOpened,
            pybreaker.STATE_HALF_OPEN: BreakerHalfOpened,
            pybreaker.STATE_CLOSED: BreakerClosed,
        }[after]
        log.warning("the breaker of %s went from %s to %s", self.name, before, after)
        self._emit(kind(type=self.name, before=before, after=after))


class Circuits:
    """The circuits of an app's job types."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._circuits: dict[str, Circuit] = {}

    def middleware(self, name: str, how: Breaker) -> Middleware:
        """The middleware of one job type's circuit."""
        circuit = self._circuits[name] = Circuit(name, how, self._emit)
        return circuit.middleware

    def startable(self, names: Iterable[str]) -> list[str]:
        """Those of the job types whose jobs may start now: the only ones worth fetching."""
        return [name for name in names if name not in self._circuits or not self._circuits[name].shut_for]

    def states(self) -> dict[str, str]:
        """The state of each circuit."""
        return {name: circuit.state for name, circuit in self._circuits.items()}


class _Teller(pybreaker.CircuitBreakerListener):
    """Passes the state machine's transitions on."""

    def __init__(self, circuit: Circuit) -> None:
        self._circuit = circuit

    def state_change(self, cb: pybreaker.CircuitBreaker, old_state: Any, new_state: Any) -> None:
        self._circuit.moved(old_state.name if old_state else pybreaker.STATE_CLOSED, new_state.name)


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
