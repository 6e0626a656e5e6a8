"""A job type's circuit against the simplest thing that counts: jobs begin and end in every order, and time passes."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import rxjobs as rj
from rxjobs.decide import raised
from rxjobs.middleware.breaker import Circuit
from rxjobs.testing import a_job
from tests.model.profile import profile

RESET = 100.0
ENDS = {"good": rj.Complete(), "bad": ValueError("down"), "unwanted": rj.Cancel("unwanted"), "released": rj.Release()}


class _Suspension:
    """Where a job is that runs: its coroutine waits here until it is told how it ended."""

    def __await__(self) -> Any:
        return (yield self)


@dataclass
class Running:
    """A job between its start and its end."""

    run: Coroutine[Any, Any, rj.Outcome]
    is_probe: bool


class Breakers(RuleBasedStateMachine):
    @initialize(fail_max=st.integers(1, 3), probes=st.integers(1, 2))
    def begin(self, fail_max: int, probes: int) -> None:
        self.now = 0.0
        self.how = rj.Breaker(fail_max=fail_max, probes=probes, reset_timeout=RESET)
        self.circuit = Circuit("work", self.how, lambda event: None, lambda: self.now)
        self.running: list[Running] = []
        self.state, self.failures, self.successes, self.opened = "closed", 0, 0, 0.0

    @rule()
    def start(self) -> None:
        """A job may run, or is put off, as the model says."""
        may = self._may_start()
        assert (self.circuit.shut_for == 0.0) == may
        run = self.circuit.middleware(a_job(attempt=1), _wait)
        outcome = _step(run, None)
        assert (outcome is None) == may
        if outcome is not None:
            assert isinstance(outcome, rj.Snooze)
            assert outcome.seconds > 0
        else:
            is_probe = self.state != "closed"
            if self.state == "open":
                self.state, self.successes = "half-open", 0
            self.running.append(Running(run, is_probe))

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9), how=st.sampled_from(sorted(ENDS)))
    def end(self, which: int, how: str) -> None:
        one = self.running.pop(which % len(self.running))
        assert _step(one.run, how) is not None
        self._learn(how, one.is_probe)

    @rule(seconds=st.sampled_from((30.0, RESET + 1.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def it_is_in_the_state_of_the_model(self) -> None:
        assert self.circuit.state == self.state

    @invariant()
    def no_more_probes_are_out_than_may_be(self) -> None:
        if self.state == "half-open":
            assert sum(one.is_probe for one in self.running) <= self.how.probes

    def teardown(self) -> None:
        for one in getattr(self, "running", ()):
            one.run.close()

    def _may_start(self) -> bool:
        probing = sum(one.is_probe for one in self.running)
        match self.state:
            case "closed":
                return True
            case "open":
                return self.now >= self.opened + RESET
            case _:
                return probing + self.successes < self.how.probes

    def _learn(self, how: str, is_probe: bool) -> None:
        if how not in ("good", "bad") or is_probe != (self.state == "half-open") or self.state == "open":
            return
        if how == "good":
            self.failures, self.successes = 0, self.successes + is_probe
            if is_probe and self.successes >= self.how.probes:
                self.state, self.successes = "closed", 0
            return
        self.failures += 1
        if is_probe or self.failures >= self.how.fail_max:
            self.state, self.opened, self.failures, self.successes = "open", self.now, 0, 0


def _step(run: Coroutine[Any, Any, rj.Outcome], how: str | None) -> rj.Outcome | None:
    """Let a job go on; its outcome, once it has one."""
    try:
        run.send(how)
    except StopIteration as ended:
        outcome: rj.Outcome = ended.value
        return outcome
    return None


async def _wait(job: rj.Job) -> rj.Outcome:
    how = await _Suspension()
    end = ENDS[how]
    return end if isinstance(end, rj.Outcome) else raised(job, end)


TestBreakers = Breakers.TestCase
TestBreakers.settings = profile(200)
