"""A job type's circuit, by a clock that the test turns."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest

import rxjobs as rj
from rxjobs.decide import raised
from rxjobs.events import BreakerClosed, BreakerHalfOpened, BreakerOpened, BreakerRejected, Event
from rxjobs.executors.in_threads import in_threads
from rxjobs.failure import Failure, RemoteFailure
from rxjobs.middleware.breaker import Circuit
from rxjobs.middleware.circuits import Circuits
from rxjobs.outcome import Finished
from rxjobs.testing import a_job, job_type

CANCELLED = "asyncio.exceptions.CancelledError"


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A circuit, and what it was seen to do."""

    def __init__(self, **how: Any) -> None:
        self.clock = Clock()
        self.events = list[Event]()
        self.circuit = Circuit("send_mail", rj.Breaker(**how), self.events.append, self.clock)
        self.ran = 0

    async def run(self, *outcomes: rj.Outcome | BaseException) -> list[rj.Outcome]:
        """Have one job after the other end so; what came out of the circuit."""
        return [await self.circuit.middleware(a_job(attempt=1), self._ending(outcome)) for outcome in outcomes]

    def _ending(self, outcome: rj.Outcome | BaseException) -> Callable[[rj.Job], Awaitable[rj.Outcome]]:
        async def end(job: rj.Job) -> rj.Outcome:
            self.ran += 1
            return outcome if isinstance(outcome, rj.Outcome) else raised(job, outcome)

        return end

    async def open(self) -> None:
        await self.run(*[ValueError("down")] * self.circuit.how.fail_max)
        assert self.circuit.state == "open"

    async def half_open_with(self, count: int) -> tuple[list[asyncio.Task[rj.Outcome]], asyncio.Future[rj.Outcome]]:
        """Let the reset time pass, and so many jobs come at once; they end as the future says."""
        self.clock.now += 1000
        end: asyncio.Future[rj.Outcome] = asyncio.get_running_loop().create_future()

        async def wait(job: rj.Job) -> rj.Outcome:
            self.ran += 1
            return await asyncio.shield(end)

        tasks = [asyncio.create_task(self.circuit.middleware(a_job(attempt=1), wait)) for _ in range(count)]
        await asyncio.sleep(0)
        return tasks, end


def failures(count: int) -> list[BaseException]:
    return [ValueError("down") for _ in range(count)]


def kinds(events: Iterable[Event]) -> list[type[Event]]:
    return [type(event) for event in events]


async def test_it_opens_after_so_many_failures_in_a_row():
    bench = Bench(fail_max=3)
    await bench.run(*failures(2))
    assert bench.circuit.state == "closed"
    await bench.run(*failures(1))
    assert bench.circuit.state == "open"
    assert kinds(bench.events) == [BreakerOpened]
    assert (bench.events[0].type, bench.events[0].before, bench.events[0].after) == ("send_mail", "closed", "open")


async def test_a_success_starts_the_count_anew():
    bench = Bench(fail_max=3)
    await bench.run(*failures(2), rj.Complete(), *failures(2))
    assert bench.circuit.state == "closed"
    await bench.run(*failures(1))
    assert bench.circuit.state == "open"


async def test_while_open_a_job_is_snoozed_until_the_reset_time_without_running():
    bench = Bench(fail_max=1, reset_timeout=30)
    await bench.open()
    bench.clock.now += 10
    ran = bench.ran
    (outcome,) = await bench.run(rj.Complete())
    assert isinstance(outcome, rj.Snooze)
    assert outcome.seconds == 20
    assert "breaker of send_mail is open" in outcome.reason
    assert bench.ran == ran
    assert kinds(bench.events) == [BreakerOpened, BreakerRejected]


async def test_an_excluded_exception_moves_nothing():
    bench = Bench(fail_max=3, exclude=(LookupError,))
    await bench.run(*failures(2), *[KeyError("no such user")] * 10)
    assert bench.circuit.state == "closed"
    await bench.run(*failures(1))
    assert bench.circuit.state == "open"
    bench.clock.now += 30
    await bench.run(KeyError("no such user"))
    assert bench.circuit.state == "half-open"
    await bench.run(rj.Complete())
    assert bench.circuit.state == "closed"


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError("by itself"), RemoteFailure(Failure(CANCELLED, "in a process"))], ids=repr
)
async def test_a_job_that_cancels_itself_moves_nothing(error):
    """F28, and as arq#247 (row 64): nobody asked it to, and its dependency has no part in it. Its attempt has failed."""
    bench = Bench(fail_max=3)
    outcomes = await bench.run(*failures(2), *[error] * 10)
    assert {type(outcome) for outcome in outcomes} == {rj.Retry}
    assert bench.circuit.state == "closed"
    await bench.run(*failures(1))
    assert bench.circuit.state == "open"


@pytest.mark.parametrize("probes", [1, 3])
@pytest.mark.parametrize("error", [KeyError("no such user"), asyncio.CancelledError()], ids=repr)
async def test_a_probe_whose_error_says_nothing_gives_its_turn_back(error, probes):
    """However often that happens, the next job probes, and it closes as it would have."""
    bench = Bench(fail_max=1, probes=probes, exclude=(LookupError,))
    await bench.open()
    bench.clock.now += 1000
    for _ in range(50):
        (outcome,) = await bench.run(error)
        assert isinstance(outcome, rj.Retry)
        assert (bench.circuit.state, bench.circuit.shut_for) == ("half-open", 0.0)
    tasks, end = await bench.half_open_with(10)
    assert sum(not task.done() for task in tasks) == probes
    end.set_exception(error)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert bench.circuit.shut_for == 0.0
    await bench.run(*[rj.Complete()] * probes)
    assert bench.circuit.state == "closed"


@pytest.mark.parametrize(
    "outcome", [rj.Snooze(5), rj.Cancel(), rj.Release(), rj.Discard("the job said so")], ids=lambda outcome: type(outcome).__name__
)
async def test_what_says_nothing_about_the_service_moves_nothing(outcome):
    bench = Bench(fail_max=3)
    await bench.run(*failures(2), *[outcome] * 10)
    assert bench.circuit.state == "closed"
    await bench.run(*failures(1))
    assert bench.circuit.state == "open"
    bench.clock.now += 30
    await bench.run(outcome)
    assert bench.circuit.state == "half-open"


@pytest.mark.parametrize("outcome", [rj.Retry(), rj.Discard("used up", exception=ValueError("down"))], ids=["retry", "discard"])
async def test_a_retry_that_was_asked_for_and_a_last_failure_count(outcome):
    bench = Bench(fail_max=2)
    await bench.run(outcome, outcome)
    assert bench.circuit.state == "open"


@pytest.mark.parametrize("probes", [1, 3])
async def test_half_open_it_lets_exactly_the_probes_through_with_many_waiting(probes):
    bench = Bench(fail_max=2, probes=probes)
    await bench.open()
    ran = bench.ran
    tasks, end = await bench.half_open_with(50)
    assert bench.circuit.state == "half-open"
    assert bench.ran - ran == probes
    rejected = [task.result() for task in tasks if task.done()]
    assert len(rejected) == 50 - probes
    assert {type(outcome) for outcome in rejected} == {rj.Snooze}
    end.set_result(rj.Complete())
    await asyncio.gather(*tasks)
    assert bench.circuit.state == "closed"
    assert kinds(event for event in bench.events if not isinstance(event, BreakerRejected)) == [
        BreakerOpened, BreakerHalfOpened, BreakerClosed,
    ]  # fmt: skip


async def test_probes_that_went_well_make_no_room_for_more_than_it_takes_to_close():
    bench = Bench(fail_max=2, probes=3)
    await bench.open()
    bench.clock.now += 30
    ran = bench.ran
    await bench.run(rj.Complete())
    tasks, end = await bench.half_open_with(50)
    assert bench.ran - ran == 3
    end.set_result(rj.Complete())
    await asyncio.gather(*tasks)
    assert bench.circuit.state == "closed"


async def test_a_probe_that_fails_opens_it_again_for_the_whole_reset_time():
    bench = Bench(fail_max=5, reset_timeout=30)
    await bench.open()
    bench.clock.now += 31
    await bench.run(*failures(1))
    assert bench.circuit.state == "open"
    assert bench.circuit.shut_for == 30
    assert kinds(bench.events) == [BreakerOpened, BreakerHalfOpened, BreakerOpened]


async def test_a_probe_that_is_cancelled_gives_its_turn_to_another():
    bench = Bench(fail_max=1)
    await bench.open()
    (task,), _ = await bench.half_open_with(1)
    assert bench.circuit.shut_for > 0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert bench.circuit.shut_for == 0
    await bench.run(rj.Complete())
    assert bench.circuit.state == "closed"


async def test_what_ends_after_it_has_opened_closes_nothing():
    bench = Bench(fail_max=2)
    tasks, end = await bench.half_open_with(3)
    await bench.open()
    end.set_result(rj.Complete())
    await asyncio.gather(*tasks)
    assert bench.circuit.state == "open"


async def test_after_it_has_closed_it_takes_all_the_failures_again():
    bench = Bench(fail_max=3)
    await bench.open()
    bench.clock.now += 30
    await bench.run(rj.Complete(), *failures(2))
    assert bench.circuit.state == "closed"
    await bench.run(*failures(1))
    assert bench.circuit.state == "open"


async def test_a_call_that_takes_too_long_counts_as_one_that_failed():
    bench = Bench(fail_max=2, slow=5)

    async def take(seconds: float) -> rj.Outcome:
        async def end(job: rj.Job) -> rj.Outcome:
            bench.clock.now += seconds
            return rj.Complete()

        return await bench.circuit.middleware(a_job(attempt=1), end)

    for seconds in (6, 5, 6):
        assert await take(seconds) == rj.Complete()
        assert bench.circuit.state == "closed"
    await take(6)
    assert bench.circuit.state == "open"
    bench.clock.now += 1000
    await take(6)
    assert bench.circuit.state == "open"
    bench.clock.now += 1000
    await take(1)
    assert bench.circuit.state == "closed"


async def test_the_time_that_a_call_waits_for_its_thread_is_not_its_own():
    one = in_threads(1)
    circuit = Circuit("sleep", rj.Breaker(fail_max=1, slow=0.5), lambda event: None)

    def sleep(seconds: float) -> None:
        time.sleep(seconds)

    definition = job_type(sleep, on=one, middleware=(circuit.middleware,))
    jobs = [a_job(definition=definition, args={"seconds": 0.2}, attempt=1) for _ in range(5)]
    began = time.monotonic()
    await asyncio.gather(*(definition.perform(job, None) for job in jobs))
    assert time.monotonic() - began > 0.9
    assert circuit.state == "closed"
    await one.close()


async def test_it_opens_at_a_rate_of_failures_however_they_are_spread():
    bench = Bench(fail_max=100, failure_rate=0.5, min_calls=10, window=60)
    await bench.run(*[rj.Complete(), *failures(1)] * 4, rj.Complete())
    assert bench.circuit.state == "closed"
    await bench.run(*failures(1))
    assert bench.circuit.state == "open"


async def test_calls_before_the_window_and_before_it_opened_have_no_part_in_the_rate():
    bench = Bench(fail_max=100, failure_rate=0.5, min_calls=10, window=60)
    await bench.run(*[*failures(1), rj.Complete()] * 4)
    bench.clock.now += 91
    await bench.run(*failures(9))
    assert bench.circuit.state == "closed"
    await bench.run(*failures(1))
    assert bench.circuit.state == "open"
    bench.clock.now += 30
    await bench.run(rj.Complete(), *failures(9))
    assert bench.circuit.state == "closed"


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("failure_rate", 0, "failure_rate is a number from 0.001 to 1, not 0"),
        ("failure_rate", 50, "failure_rate is a number from 0.001 to 1, not 50"),
        ("window", 0, "window is a number from 0.1 to 86400, not 0"),
        ("min_calls", 0.5, "min_calls is a whole number from 1 to"),
        ("slow", -1, "slow is a number from 0.001 to"),
    ],
)
def test_options_that_make_no_sense_are_refused(option, value, words):
    with pytest.raises(rj.InvalidOption, match=re.escape(words)):
        rj.Breaker(**{option: value})


async def test_whoever_hears_of_a_move_finds_it_done():
    seen, found = [], []
    circuits = Circuits(lambda event: found.extend([seen.append(event), circuits.states(), circuits.startable(["broken"])]))
    middleware = circuits.middleware("broken", rj.Breaker(fail_max=1))

    async def fail(job: rj.Job) -> rj.Outcome:
        return raised(job, ValueError("down"))

    await middleware(a_job(attempt=1), fail)
    assert kinds(seen) == [BreakerOpened]
    assert found[1:] == [{"broken": "open"}, []]


class Refused(ConnectionError):
    """What a process may have raised."""


def remote(name: str) -> RemoteFailure:
    return RemoteFailure(Failure(name, "from another process"))


@pytest.mark.parametrize(
    ("name", "state"),
    [
        (f"{__name__}.Refused", "closed"),
        ("ConnectionError", "closed"),
        ("ConnectionResetError", "closed"),
        ("ValueError", "open"),
        ("elsewhere.ConnectionError", "open"),
    ],
)
async def test_failures_of_other_processes_are_excluded_by_the_name_of_their_class(name, state):
    bench = Bench(fail_max=2, exclude=(ConnectionError,))
    await bench.run(remote(name), remote(name))
    assert bench.circuit.state == state


@pytest.fixture
async def threads() -> AsyncIterator[Any]:
    executor = in_threads(2)
    yield executor
    await executor.close()


async def test_it_sees_how_jobs_end_in_threads(threads):
    bench = Bench(fail_max=2, exclude=(LookupError,))

    def work(how: str) -> None:
        if how != "well":
            raise {"down": ValueError, "not there": KeyError}[how](how)

    definition = job_type(work, on=threads, middleware=(bench.circuit.middleware,))

    async def run(how: str) -> Finished:
        return await definition.perform(a_job(definition=definition, args={"how": how}, attempt=1), None)

    for how in ("down", "not there", "well", "down", "not there"):
        await run(how)
        assert bench.circuit.state == "closed"
    await run("down")
    assert bench.circuit.state == "open"
    assert isinstance((await run("well")).outcome, rj.Snooze)


async def test_job_types_whose_circuit_is_open_are_not_startable():
    circuits = Circuits([].append)
    middleware = circuits.middleware("broken", rj.Breaker(fail_max=1))

    async def fail(job: rj.Job) -> rj.Outcome:
        return raised(job, ValueError("down"))

    assert circuits.startable(["broken", "unknown"]) == ["broken", "unknown"]
    await middleware(a_job(attempt=1), fail)
    assert circuits.startable(["broken", "unknown"]) == ["unknown"]
    assert circuits.states() == {"broken": "open"}
