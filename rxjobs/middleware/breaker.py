"""A circuit breaker per job type: pybreaker's state machine, driven by outcomes.

pybreaker guards a call while it runs, under a lock and without seeing coroutines. Here a job runs first, wherever it
likes, and its end is replayed to the state machine; who may start, and how many probes, is decided by the gate.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

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
        self._emit = emit
        self._clock = clock
        self._opened = 0.0
        self._probing = 0
        self._is_spotless = True
        excluded = {qualified_name(kind) for kind in how.exclude}
        self._machine = pybreaker.CircuitBreaker(
            fail_max=how.fail_max,
            reset_timeout=how.reset_timeout,
            success_threshold=how.probes,
            exclude=[lambda error: _is_excluded(error, how.exclude, excluded)],
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
        return 0.0 if self._probing < self._how.probes else CROWDED

    async def middleware(self, job: Job, call_next: Next) -> Outcome:
        """Snooze the job while the circuit is open, which costs it no attempt; else run it, and learn from its end."""
        wait = self.shut_for
        if wait:
            self._emit(BreakerRejected(job=job))
            return Snooze(wait, f"the breaker of {self.name} is {self.state}")
        if self._is_spotless or self.state == pybreaker.STATE_CLOSED:
            outcome = await call_next(job)
            if not (self._is_spotless and isinstance(outcome, Complete)):
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
            case Retry(exception=error) | Discard(exception=error) if error is not None or isinstance(outcome, Retry):
                self._is_spotless = False
                self._fail(error or RuntimeError(outcome.reason))
            case _:  # a job that is snoozed, cancelled or released says nothing about what it depends on
                pass

    def _fail(self, error: BaseException) -> None:
        def fail() -> None:
            raise error

        try:
            self._machine.call(fail)
        except BaseException as raised:
            if raised is not error:
                raise

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


def _is_excluded(error: BaseException, kinds: tuple[type[BaseException], ...], names: set[str]) -> bool:
    # what comes from another process is text, so it can be known by its class's name only
    return error.failure.type in names if isinstance(error, RemoteFailure) else isinstance(error, kinds)
