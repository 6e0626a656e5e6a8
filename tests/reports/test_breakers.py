"""What befell others' circuit breakers: calls one after the other, and clocks that were set. See docs/faults.md."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import datetime, timedelta
from typing import Any

import pybreaker
import pytest

import rxjobs as rj
from rxjobs.decide import raised
from rxjobs.middleware.breaker import Circuit
from rxjobs.testing import a_job, job_type
from tests.waiting import until


async def test_jobs_of_one_breaker_run_side_by_side():
    """As pybreaker#3: a lock was held around each call, so that calls ran one after the other."""
    together = threading.Barrier(8)  # nobody gets through before all eight are here
    threads = rj.in_threads(8)
    circuit = Circuit("send_mail", rj.Breaker(fail_max=1), lambda event: None)

    def meet() -> int:
        return together.wait(30)

    meeting = job_type(meet, name="meeting", on=threads, middleware=(circuit.middleware,))
    perform = meeting.perform
    assert perform is not None
    began = time.monotonic()
    finished = await asyncio.gather(*(perform(a_job(definition=meeting), None) for _ in range(8)))
    print(f"eight that wait for each other: {time.monotonic() - began:.3f} s")
    assert [type(one.outcome) for one in finished] == [rj.Complete] * 8
    assert circuit.state == "closed"
    await threads.close()


class WallClock:
    """The wall clock as the process sees it, which somebody sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.set_by = 0.0
        real, clock = time.time, self

        class Datetime(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return datetime.now(tz) + timedelta(seconds=clock.set_by)

        monkeypatch.setattr(time, "time", lambda: real() + clock.set_by)
        monkeypatch.setattr(pybreaker, "datetime", Datetime)


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0], ids=["an hour back", "an hour on"])
async def test_a_clock_that_is_set_while_a_circuit_is_open_changes_nothing(seconds, monkeypatch):
    """As stoplight#473, rubyist/circuitbreaker#41: open for an hour more, or closed at once, when the clock was set."""
    wall = WallClock(monkeypatch)
    circuit = Circuit("send_mail", rj.Breaker(fail_max=1, reset_timeout=0.5), lambda event: None)

    async def fail(job: rj.Job) -> rj.Outcome:
        return raised(job, ValueError("down"))

    async def succeed(job: rj.Job) -> rj.Outcome:
        return rj.Complete()

    await circuit.middleware(a_job(attempt=1), fail)
    opened, before = time.monotonic(), time.time()
    wall.set_by = seconds
    assert abs(time.time() - before - seconds) < 60
    if time.monotonic() - opened < 0.4:  # else this machine took so long that it may be over
        assert isinstance(await circuit.middleware(a_job(attempt=1), succeed), rj.Snooze)
    await until(lambda: circuit.shut_for == 0)
    print(f"half open after {time.monotonic() - opened:.2f} s")
    assert time.monotonic() - opened >= 0.45  # it opened a moment before
    assert isinstance(await circuit.middleware(a_job(attempt=1), succeed), rj.Complete)
    assert circuit.state == "closed"
