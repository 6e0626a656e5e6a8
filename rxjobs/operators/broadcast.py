"""Give every job to every branch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import msgspec
from reactivex import abc

from rxjobs.demand import ended
from rxjobs.hold import DROPPED_DELAY, Acked, released_as_dropped
from rxjobs.job import Job
from rxjobs.log_lines import logger
from rxjobs.operators.dispatch import Branching
from rxjobs.operators.dispatching import STOPPED, Dispatching
from rxjobs.operators.lane import Loan
from rxjobs.operators.stage import Item, Operator
from rxjobs.outcome import Cancel, Complete, Discard, Finished, Outcome, Release, Retry, Snooze
from rxjobs.scope import Scope

log = logger("rxjobs.dispatch")


def broadcast(*branches: Operator, name: str = "broadcast") -> Branching:
    """Give every branch every job, at the pace of the slowest; a job is settled once, when all of them have settled it.

    The worst outcome wins: Discard, Retry, Cancel, Snooze, Release, Complete; of two alike the one with the longer delay, or with a
    result. A branch that a job is not for says so by `rj.filter(..., otherwise=rj.Complete())`. An rj.ack() inside a branch goes on
    when the job is really acked, which is for all branches together. A job that is retried runs again in all of them.
    `.add(branch)` and `.remove(branch)` change the branches while it runs.

        ──a──────b──────────
          broadcast(x, y)
        ─────────A──────B───      A: how a ended in x and in y
    """
    return _Broadcast("broadcast", name, branches)


class _Broadcast(Branching):
    @property
    def concurrency(self) -> int:
        """As many jobs as the branch that takes fewest."""
        return min((branch.concurrency for branch in self.branches), default=1)

    def dispatching(self, observer: abc.ObserverBase[Any], scope: Scope, key: Hashable) -> Dispatching:
        return _Broadcasting(self.counted, observer, scope)


class _Shared:
    """A job that several branches have, and the worst of how it ended so far."""

    __slots__ = ("left", "thens", "worst")

    def __init__(self, left: int) -> None:
        self.left = left
        self.worst: Finished | None = None
        self.thens: list[Callable[[], object]] = []


class _Broadcasting(Dispatching):
    def give(self) -> bool:
        lanes = [lane for lane in self.lanes if not lane.is_leaving and not lane.has_ended]
        if not self.waiting or not lanes or any(lane.free <= 0 for lane in lanes):
            return False
        job, shared = self.next(), _Shared(len(lanes))
        for lane in lanes:
            lane.lend(job, shared)
        return True

    def came(self, loan: Loan, item: Item) -> Item | None:
        if isinstance(item, Job):
            log.warning(
                "job %s (%s) of queue %s came to the end of branch %s without having been settled, and is released for %g s; the "
                "branch lacks rj.execute() or rj.complete()",
                item.id, item.type, item.queue, loan.lane.name, DROPPED_DELAY,
            )  # fmt: skip
            item = Finished(item, Release(DROPPED_DELAY, f"branch {loan.lane.name} has no stage that settles it"))
        self._settle(loan, item)
        return None

    def came_again(self, loan: Loan, item: Item) -> Item | None:
        return None  # what is acked goes on once, for all branches

    def settled(self, loan: Loan, finished: Finished, then: Acked | None) -> None:
        if then is not None:
            loan.note.thens.append(lambda: then(finished))
        self._settle(loan, finished)

    def dropped(self, loan: Loan, outcome: Outcome | None) -> None:
        if outcome is None:
            outcome = Release(reason=STOPPED) if self.is_over else released_as_dropped(loan.job.told, self.scope.emit)
        self._settle(loan, Finished(loan.job, outcome))

    def _settle(self, loan: Loan, finished: Finished) -> None:
        # what it has keeps the loan, so that this would be a cycle, and a job in it that is dropped be noticed late
        shared, loan.note = loan.note, None
        shared.left -= 1
        if shared.worst is None or _weight(finished.outcome) > _weight(shared.worst.outcome):
            shared.worst = finished
        if shared.left:
            return
        worst = ended(msgspec.structs.replace(shared.worst.job, hold=loan.job.hold), shared.worst.outcome)
        if shared.thens:
            self.write(worst, lambda finished: self._tell(shared, finished))
        else:
            self.emit(worst)

    def _tell(self, shared: _Shared, finished: Finished) -> None:
        self.emit(finished)
        for then in shared.thens:
            then()


def _weight(outcome: Outcome) -> tuple[int, float]:
    """How bad an outcome is; of two alike, how long the job waits, or whether it has a result."""
    match outcome:
        case Discard():
            return 5, 0
        case Retry(delay=delay):
            return 4, delay or 0
        case Cancel():
            return 3, 0
        case Snooze(seconds=delay):
            return 2, delay
        case Release(delay=delay):
            return 1, delay
        case Complete(result=result):
            return 0, result is not None
        case _:  # an outcome of somebody's own is none that a source knows
            return 6, 0
