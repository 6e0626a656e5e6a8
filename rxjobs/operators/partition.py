"""Keep the order of the jobs of one key, and run different keys in parallel."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable

from rxjobs.counted import Passing
from rxjobs.demand import ended
from rxjobs.errors import InvalidOption
from rxjobs.job import Job
from rxjobs.ledger import Ledger
from rxjobs.operators.branch import Branch, as_branch
from rxjobs.operators.dispatch import Dispatch
from rxjobs.operators.dispatching import Dispatching
from rxjobs.operators.keys import By, key_of
from rxjobs.operators.lane import Lane, Loan
from rxjobs.operators.stage import Operator, check_count, fail
from rxjobs.operators.turns import Turns
from rxjobs.outcome import Outcome, Release
from rxjobs.scope import Scope

HELD_BACK = "an earlier job of its key has not ended"


def partition(n: int, *, by: By, branch: Operator, strict: bool = False, name: str = "partition") -> Dispatch:
    """Use a branch n times, and give each job to the one that its key belongs to.

    `by` is a function of a job, or a name such as "args.user_id". Jobs of one key never overlap, and start in the order in which
    they were claimed, whatever the concurrency of the branch and of the stages before. Different keys run in parallel: a slow key
    takes one place in the demand of its branch, and holds up none while that has more. A key function that raises fails its job.

    With `strict` the order holds through retries too: while a job is to be retried, snoozed or released, later ones of its key go
    back to their queue (Release, no attempt) for 1 to 60 s at a time, until it has ended. One that has not come back 60 s after it
    is due is waited for no longer: it was cancelled, or another node has it. Each process orders what it claims by itself.

        ──a1─a2─b1──────────────
          partition(2, by=letter, branch=rj.execute())
        ──────────A1─B1──A2─────      a2 began when a1 had ended
    """
    check_count("partition", "n", n)
    if not isinstance(strict, bool):
        raise InvalidOption(f"rj.partition: strict is True or False, not {strict!r}")
    return _Partition(n, key_of("partition", by), as_branch("partition", branch), strict, name)


class _Partition(Dispatch):
    def __init__(self, n: int, by: Callable[[Job], Hashable], branch: Branch, strict: bool, name: str) -> None:
        super().__init__(name, [branch] * n)
        self._by = by
        self._strict = strict

    @property
    def concurrency(self) -> int:
        """As many jobs as its branches together."""
        return len(self._branches) * self._branches[0].concurrency

    def dispatching(self, observer: abc.ObserverBase[Any], scope: Scope, key: Hashable) -> Dispatching:
        turns = scope.kept(key, lambda: Turns(self._by, scope.scheduler, strict=self._strict))
        return _Partitioning(self.counted, observer, scope, turns, self._by)


class _Partitioning(Dispatching):
    def __init__(
        self, counted: Passing, observer: abc.ObserverBase[Any], scope: Scope, turns: Turns, by: Callable[[Job], Hashable]
    ) -> None:
        super().__init__(counted, observer, scope)
        self._turns = turns
        self._by = by
        self._lines: dict[Hashable, deque[Job]] = {}
        self._ready: list[deque[Hashable]] = []
        """By lane, the keys for which it may be somebody's turn."""
        self._to_look_at: dict[int, None] = {}

    def start(self, source: Observable[Any], ways: Any) -> abc.DisposableBase:
        self._ready = [deque() for _ in ways]
        listening = self._turns.listen(self._look)
        return CompositeDisposable(super().start(source, ways), listening)

    def is_behind(self, pulls: list[Ledger]) -> None:
        for ledger in pulls:
            self._turns.watch(ledger)

    def add(self, job: Job) -> None:
        try:
            key = self._by(job)
            hash(key)
        except Exception as error:
            self.emit(self.counted.settle(fail(job, error)))
            return
        self._turns.arrived(job, key)
        self._lines.setdefault(key, deque()).append(job)
        self.waits(job)
        self._mark(key)

    @property
    def has_waiting(self) -> bool:
        return bool(self._lines)

    def those_that_wait(self) -> list[Job]:
        return [job for line in tuple(self._lines.values()) for job in tuple(line)]

    def take_out(self, which: Callable[[Job], bool]) -> list[Job]:
        taken = [job for line in self._lines.values() for job in line if which(job)]
        lines = {key: deque(job for job in line if not which(job)) for key, line in self._lines.items()}
        self._lines = {key: line for key, line in lines.items() if line}
        for job in taken:
            self._turns.left(job, Release())
            self.waits(job, -1)
        return taken

    def give(self) -> bool:
        while self._to_look_at:
            place = next(iter(self._to_look_at))
            lane, ready = self.lanes[place], self._ready[place]
            while ready and (lane.free > 0 or lane.has_ended):
                if self._give_next(lane, ready.popleft()):
                    return True
            del self._to_look_at[place]
        return False

    def look_at(self, lane: Lane) -> None:
        self._to_look_at[lane.place] = None
        super().look_at(lane)

    def freed(self, loan: Loan, outcome: Outcome | None) -> None:
        self._turns.busy.discard(loan.note)
        self._turns.left(loan.job, outcome)
        # no job is given yet: the one that left goes on first
        if loan.note in self._lines:
            self._mark(loan.note)
        if self.is_over or self._turns.is_shared:
            self.scope.scheduler.later(0, lambda: self._turns.tell(loan.note))

    def _look(self, key: Hashable) -> None:
        if key in self._lines:
            self._mark(key)
            self.give_all()

    def _mark(self, key: Hashable) -> None:
        if key not in self._turns.busy:
            place = hash(key) % len(self._ready)
            self._ready[place].append(key)
            self._to_look_at[place] = None

    def _give_next(self, lane: Lane, key: Hashable) -> bool:
        job = None if key in self._turns.busy else self._next(key)
        if job is None:
            return False
        if lane.has_ended:
            self._turns.left(job, Release())
            self._mark(key)
            return True  # its branch has ended by itself: what is for it is dropped, which its pull notices
        self._turns.busy.add(key)
        lane.lend(job, key)
        return True

    def _next(self, key: Hashable) -> Job | None:
        """The job of a key whose turn it is, taken from its line; what is held back leaves it too."""
        line = self._lines.get(key, deque())
        place = 0
        while place < len(line):
            job = line[place]
            wait = self._turns.wait(job, key)
            if wait is None:
                place += 1
                continue
            del line[place]
            self.waits(job, -1)
            if not line:
                del self._lines[key]
            if not wait:
                self.counted.let_pass(job, self.waited(job))
                return job
            release = Release(wait, HELD_BACK)
            self._turns.left(job, release)
            self.emit(self.counted.settle(ended(job, release), self.waited(job)))
        return None
