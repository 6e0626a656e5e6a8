"""Make known what one round of a service did, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from rxjobs.events import Emit, MaintenanceEnded
from rxjobs.failure import Failure, describe


@dataclass(frozen=True, slots=True)
class Done:
    """How many jobs, or whatever it was, a round was about, and how many of them in which state."""

    count: int
    states: Mapping[str, int] = field(default_factory=dict)


async def maintained(emit: Emit | None, task: str, work: Callable[[], Awaitable[Done]]) -> int:
    """Do one round of a task, and tell of it, also where it fails; gives the count."""
    began = time.monotonic_ns()

    def tell(done: Done, failure: Failure | None = None) -> None:
        if emit is not None:
            took = time.monotonic_ns() - began
            emit(MaintenanceEnded(task=task, count=done.count, duration=took, states=done.states, error=failure))

    try:
        done = await work()
    except Exception as error:
        tell(Done(0), describe(error))
        raise
    tell(done)
    return done.count
