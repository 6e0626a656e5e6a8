"""Jobs that wait in a stage which runs nothing: told by their pipeline what those are told that run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rxjobs.counted import Passing
from rxjobs.demand import let_go
from rxjobs.job import Job
from rxjobs.ledger import Ledger


def pull_of(job: Job) -> Ledger | None:
    """What holds the demand that a job takes a place in, also where it is on loan to a branch."""
    hold = job.hold
    while hold is not None and not isinstance(hold.ledger, Ledger):
        hold = hold.ledger.job.hold
    return None if hold is None else hold.ledger


class Lingering:
    """Where jobs wait in a stage. A stage gives `take_out`, which takes out and returns the jobs for which a condition holds."""

    limit = 0

    def __init__(
        self, take_out: Callable[[Callable[[Job], bool]], list[Job]], waiting: Callable[[], Sequence[Job]], counted: Passing
    ) -> None:
        self._take_out = take_out
        self._waiting = waiting
        self._counted = counted
        counted.working.add(self)

    @property
    def running(self) -> list[Any]:
        """Nothing is."""
        return []

    @property
    def waiting(self) -> Sequence[Job]:
        """The jobs that wait."""
        return self._waiting()

    def let_go_of_waiting(self, which: Callable[[Job], bool]) -> None:
        """Release such jobs."""
        taken = self._take_out(which)
        self._counted.let_go(taken)
        for job in taken:
            recalled = None if job.hold is None else job.hold.recalled
            let_go(job, recalled or "its pipeline was stopped")

    def stop(self, which: Callable[[Job], bool]) -> None:
        """Release such jobs: none of them has begun."""
        self.let_go_of_waiting(which)

    def detach(self, *, cancel: bool = True) -> None:
        """Release them all."""
        self.let_go_of_waiting(lambda _: True)

    def leave_behind(self) -> None:
        """There is nothing to wait for."""
