"""One call of a user's code for a job: what an executor is given to run."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol

import msgspec

from rxjobs.errors import InvalidOption
from rxjobs.job import Job


class Start:
    """Where the code of one run begins: when it is handed over, unless its executor says that it waits for a place first."""

    __slots__ = ("_then", "at", "job_id")

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        self.at: int | None = 0
        """By this process's own clock, ns: 0 when it is handed over, None while it waits."""
        self._then: tuple[Callable[[], object], ...] = ()

    def wait(self) -> None:
        """There is no place for it yet, or none that is known of."""
        self.at = None

    def begin(self) -> None:
        """Its code runs from here on; called by the thread that runs it, or sees to it."""
        self.at = time.monotonic_ns()
        for then in self._then:
            then()

    def on_begin(self, then: Callable[[], object]) -> None:
        """Have something called, in whatever thread that is, just before the code runs. It must be short, and not raise."""
        self._then = (*self._then, then)

    def left(self, seconds: float) -> float:
        """How much of so many seconds is left to it that have passed since it was handed over, or since it was last asked."""
        at = self.at
        if at is None:
            # whenever it begins from now on, it is asked again in time
            return seconds
        return seconds - (time.monotonic_ns() - at) / 1e9 if at else 0.0


starting: ContextVar[Start] = ContextVar("rxjobs_starting")
"""Where the run begins that the calling code sees to."""


class Call(msgspec.Struct, frozen=True):
    """A function and the job it is called for: with the job's arguments, or, for a stage, with the job itself."""

    function: Callable[..., Any]
    job: Job
    takes_job: bool = False

    @property
    def start(self) -> Start:
        """Where its code begins. To be asked for in the task that was given the call."""
        start = start_of(self.job.id)
        return Start(self.job.id) if start is None else start

    def invoke(self) -> Any:
        """Call the function here and now; a coroutine function gives its coroutine."""
        if self.takes_job:
            return self.function(self.job)
        return invoke(self.function, self.job)


def invoke(function: Callable[..., Any], job: Job) -> Any:
    """Call a function with the arguments of a job, here and now."""
    arguments = job.definition.arguments
    if not arguments.nameless:  # as nearly all
        return function(**job.args)
    args, kwargs = arguments.spread(job.args)
    return function(*args, **kwargs)


class UnstorableResult(msgspec.Struct, frozen=True):
    """What a call returns whose function ran, and returned something that has no JSON form."""

    reason: str


class Executor(Protocol):
    """A place where a job's code runs.

    `run` returns what the function returned and raises what it raised, whatever that was; cancelled, it stops the code if
    it can. `close` ends what the executor started; it may be used again afterwards.

    One in which calls wait for a place says so with `tells_start = True`, and tells each: `call.start.wait()` when it is handed
    over, `begin()` when it has a place. Timeouts count from there, and what is measured does. One that limits the time of its calls
    itself says so with `keeps_time = True`. One that has a shorter way for the functions of jobs may have
    `bind(function) -> (job) -> Awaitable`: what the function returns comes from there as it is.
    """

    name: str
    """Its kind, for telemetry: loop, thread, process or pool."""

    async def run(self, call: Call) -> Any: ...

    async def close(self) -> None: ...


def checked_executor(option: str, executor: Any) -> Executor:
    """An executor that was given; raises InvalidOption for what is none."""
    if isinstance(executor, type) or not all(callable(getattr(executor, name, None)) for name in ("run", "close")):
        raise InvalidOption(
            f"{option} is where code runs: rj.in_threads(8), rj.in_processes(2), rj.in_pool(pool) or the like, not {executor!r:.80}"
        )
    given: Executor = executor
    return given


def start_of(job_id: int) -> Start | None:
    """Where the run of this job begins that the calling code sees to, if that is told."""
    start = starting.get(None)
    return start if start is not None and start.job_id == job_id else None
