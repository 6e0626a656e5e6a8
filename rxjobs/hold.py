"""The place of one job in a demand, which travels with the job: how it ended, or that it was let go, is told by it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import msgspec

from rxjobs.events import Emit
from rxjobs.job import Job
from rxjobs.outcome import Finished, Outcome

Acked = Callable[[Finished], object]


class Keeper(Protocol):
    """Who gave a place to a job, and is told how it ended, or that it was let go unsettled: a pull's ledger, or a dispatcher."""

    @property
    def era(self) -> int: ...

    @property
    def is_paused(self) -> bool: ...

    @property
    def emit(self) -> Emit: ...

    @property
    def root(self) -> Keeper | None: ...

    def settle(self, finished: Finished, then: Acked | None = None) -> None: ...

    def dropped(self, job: Job, outcome: Outcome | None) -> None: ...


class Waiting(Protocol):
    """A stage's work: what it works on, and how many wait there for their turn."""

    @property
    def running(self) -> list[Any]: ...

    @property
    def waiting(self) -> int: ...


class Watcher(Protocol):
    """Who is told of each job as a pull takes it, in this order, and as it has ended."""

    def claimed(self, keeper: Keeper, job: Job) -> None: ...

    def ended(self, keeper: Keeper, finished: Finished) -> None: ...


class Hold(msgspec.Struct, eq=False):
    """The place of one job in its pipeline's demand. To let go of the last copy of an unsettled job gives it back."""

    job: Job
    ledger: Keeper
    fetched: int
    era: int
    settled: bool = False
    outcome: Outcome | None = None
    cancelled: bool = False
    deadline: datetime | None = None

    __repr__ = object.__repr__  # a job shows its place, which need not show the job once more

    @property
    def is_lost(self) -> bool:
        """Whether its node was cut off since it was asked for: others may have it, and it is not to be begun."""
        return self.era != self.ledger.era and self.job.node is not None

    @property
    def recalled(self) -> str | None:
        """Why it is not to be begun any more, if it is not: it is to be released, which is no attempt."""
        ledger = self.ledger
        if ledger.is_paused:
            return "its queue is paused"
        return "its node was cut off" if self.era != ledger.era and self.job.node is not None else None

    @property
    def root(self) -> Keeper | None:
        """The ledger of the pull that its job came from, also inside of a branch."""
        return self.ledger.root

    def __del__(self) -> None:
        if not self.settled:
            self.ledger.dropped(self.job, self.outcome)
