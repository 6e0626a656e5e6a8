"""One call of a user's code for a job: what an executor is given to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from rxjobs.job import Job


class Call(msgspec.Struct, frozen=True):
    """A function and the job it is called for: with the job's arguments, or, for a stage, with the job itself."""

    function: Callable[..., Any]
    job: Job
    takes_job: bool = False

    def invoke(self) -> Any:
        """Call the function here and now; a coroutine function gives its coroutine."""
        if self.takes_job:
            return self.function(self.job)
        args, kwargs = self.job.definition.arguments.spread(self.job.args)
        return self.function(*args, **kwargs)


class UnstorableResult(msgspec.Struct, frozen=True):
    """What a call returns whose function ran, and returned something that has no JSON form."""

    reason: str


class Executor(Protocol):
    """A place where a job's code runs.

    `run` returns what the function returned and raises what it raised, whatever that was; cancelled, it stops the code if
    it can. `close` ends what the executor started; it may be used again afterwards.
    """

    name: str
    """Its kind, for telemetry: loop, thread, process or pool."""

    async def run(self, call: Call) -> Any: ...

    async def close(self) -> None: ...
