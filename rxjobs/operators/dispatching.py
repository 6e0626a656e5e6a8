"""What balance, broadcast and partition have in common while they run: jobs wait for a branch with room, what comes out goes on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable

from rxjobs.counted import Passing
from rxjobs.demand import ended, let_go, settle
from rxjobs.hold import Acked
from rxjobs.job import Job
from rxjobs.ledger import Ledger
from rxjobs.operators.lane import Lane, Loan, Way
from rxjobs.operators.lingering import Lingering, pull_of
from rxjobs.operators.stage import Item, one_by_one
from rxjobs.outcome import Finished, Outcome
from rxjobs.scope import Scope

STOPPED = "its pipeline was stopped"


class Dispatching(ABC):
    """One subscription. It is told of the jobs that branches have also after it has ended, while they run on."""

    def __init__(self, counted: Passing, observer: abc.ObserverBase[Any], scope: Scope) -> None:
        self.scope = scope
        self.lanes: list[Lane] = []
        self.waiting: deque[Job] = deque()
        self.counted = counted
        self._observer = observer
        self._opened = 0
        self._is_giving = False
        self._has_no_source = False
        self._is_abandoned = False
        self.is_over = False
        """Whether nothing is emitted any more."""
        self._since: dict[int, float] = {}
        """When each job came that waits, by its id."""
        self._lingering = Lingering(self._take_out, self.those_that_wait, counted)
        self._pulls: dict[Ledger, None] = {}

    @abstractmethod
    def give(self) -> bool:
        """Give a job that waits to a branch with room, where there are both; gives whether."""

    def add(self, job: Job) -> None:
        """Let a job wait until there is room for it."""
        self.waiting.append(job)
        self.waits(job)

    def next(self) -> Job:
        """Take out the job that has waited longest."""
        job = self.waiting.popleft()
        self.waits(job, -1)
        self.counted.let_pass(job, self.waited(job))
        return job

    def waits(self, job: Job, change: int = 1) -> None:
        """One more job waits, or one less: until others go on, who may be in a buffer and wait for it."""
        if (ledger := pull_of(job)) is not None:
            ledger.wait_for_more(change, _send_nothing)
            if change > 0:
                self._pulls[ledger] = None

    def waited(self, job: Job) -> float:
        """For how many seconds a job has waited that does so no longer."""
        now = self._now
        return now - self._since.pop(job.id, now)

    def those_that_wait(self) -> list[Job]:
        """The jobs that wait."""
        return list(self.waiting)

    @property
    def has_waiting(self) -> bool:
        """Whether a job waits."""
        return bool(self.waiting)

    def take_out(self, which: Callable[[Job], bool]) -> list[Job]:
        """Take out such jobs as wait."""
        taken = [job for job in self.waiting if which(job)]
        self.waiting = deque(job for job in self.waiting if not which(job))
        for job in taken:
            self.waits(job, -1)
        return taken

    def freed(self, loan: Loan, outcome: Outcome | None) -> None:
        """A job left its branch, and how it ended, where it has: for those that count more than places."""
        return

    def start(self, source: Observable[Any], ways: Iterable[Way]) -> abc.DisposableBase:
        """Subscribe the branches, and then what gives jobs to them."""
        here = self.scope.scheduler
        self.scope.watch(self._lingering)
        for way in ways:
            self.open(way)
        self.scope.count(self.counted)  # after the stages of its branches, since stages are shown from the last to the first
        stop = self.scope.on_stop(self._stop)
        told = one_by_one(self._observer, here, self.counted.name, self._take, on_completed=self._end)
        with self.scope.seeing_pulls() as pulls:
            upstream = source.subscribe(told, scheduler=here)
        self.is_behind(pulls)
        return CompositeDisposable(upstream, stop, Disposable(lambda: here.here(self._dispose)))

    def is_behind(self, pulls: list[Ledger]) -> None:
        """Its jobs come from these, however many stages are between."""
        return

    def open(self, way: Way) -> None:
        """Subscribe one more branch."""
        if not self.is_over:
            self._opened += 1
            lane = Lane(way, way.branch.name or f"{self.counted.name}.{self._opened}", len(self.lanes), self.scope, self)
            self.lanes.append(lane)
            lane.start()

    def close(self, way: Way) -> None:
        """Give a branch no more jobs."""
        for lane in self.lanes:
            if lane.way is way:
                lane.close()
        self.give_all()

    def look_at(self, lane: Lane) -> None:
        """A lane may have room, or has ended."""
        if lane.has_ended and lane.is_leaving and lane in self.lanes and not self._has_no_source:
            self.lanes.remove(lane)
        self.give_all()

    def give_all(self) -> None:
        """Give what can be given now."""
        if self._is_giving or self.is_over:
            return  # a job that ends at once makes room inside of this, which goes on with the next
        self._is_giving = True
        try:
            while not self.is_over and not self._is_abandoned and self.give():
                pass
            self._complete_if_done()
        finally:
            self._is_giving = False

    def came(self, loan: Loan, item: Item) -> Item | None:
        """A job came out of its branch: it goes on with its own hold."""
        self.freed(loan, item.outcome if isinstance(item, Finished) else None)
        return given_back(loan, item)

    def came_again(self, loan: Loan, item: Item) -> Item | None:
        """It was settled in its branch before, and goes on all the same, as it does after any rj.ack()."""
        return given_back(loan, item)

    def settled(self, loan: Loan, finished: Finished, then: Acked | None) -> None:
        """A job was settled in its branch: that is written down."""
        self.freed(loan, finished.outcome)
        self.write(finished_again(loan, finished), None if then is None else lambda _: then(finished))

    def dropped(self, loan: Loan, outcome: Outcome | None) -> None:
        """A job was let go in its branch, and is let go here with that: if nobody else has a copy, its pull notices."""
        self.freed(loan, outcome)
        if outcome is not None:
            ended(loan.job, outcome)

    def write(self, finished: Finished, then: Acked | None) -> None:
        """Have an outcome written down; `then` is told once it is, or soon where there is nothing to write."""
        if not settle(finished, then) and then is not None:
            self.scope.scheduler.later(0, lambda: then(finished))

    def emit(self, item: Any) -> None:
        """Send something down the stream; once that has ended, jobs are let go."""
        if self.is_over:
            for one in item if isinstance(item, list) else [item]:
                if isinstance(one, Job | Finished):
                    let_go(one)
            return
        try:
            self._observer.on_next(item)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """The machinery broke."""
        if not self.is_over:
            self._observer.on_error(error)

    def abandon(self) -> None:
        """Begin nothing more: a branch is gone, and the pipeline is to stop."""
        self._is_abandoned = True
        self._lingering.let_go_of_waiting(lambda _: True)

    @property
    def _now(self) -> float:
        return self.scope.scheduler.loop.time()

    def _take(self, item: Item) -> None:
        if isinstance(item, Finished):
            self._observer.on_next(item)
        elif self._is_abandoned or self.is_over:
            let_go(item)
        else:
            self.counted.went_in += 1
            self._since[item.id] = self._now
            self.add(item)
            del item  # one that a branch drops is let go at once
            self.give_all()
            if self._pulls and self.has_waiting:
                for ledger in tuple(self._pulls):
                    ledger.send_if_stuck()

    def _take_out(self, which: Callable[[Job], bool]) -> list[Job]:
        taken = self.take_out(which)
        for job in taken:
            self._since.pop(job.id, None)
        if taken and not self.is_over:
            # a tick later: what was taken out is settled first
            self.scope.scheduler.later(0, self.give_all)
        return taken

    def _end(self) -> None:
        self._has_no_source = True
        self.give_all()

    def _stop(self) -> None:
        down = [lane for lane in self.lanes if lane.is_down]
        if down:
            self.abandon()
        for lane in down:
            lane.close()

    def _complete_if_done(self) -> None:
        if self.is_over:
            return
        if self._has_no_source and not self.has_waiting:
            for lane in tuple(self.lanes):
                lane.close()
        # without a source and without a branch, nobody takes what waits
        if all(lane.has_ended for lane in self.lanes) and (self.lanes or self._has_no_source):
            self._lingering.let_go_of_waiting(lambda _: True)
            self.is_over = True
            self._observer.on_completed()

    def _dispose(self) -> None:
        self.is_over = True
        self._lingering.detach()
        for lane in self.lanes:
            lane.dispose()


def _send_nothing() -> None:
    """What waits for a branch cannot go on without those that it waits for."""


def given_back(loan: Loan, item: Item) -> Item:
    """What came out of a branch, with the hold that its job had before."""
    return msgspec.structs.replace(item, hold=loan.job.hold) if isinstance(item, Job) else finished_again(loan, item)


def finished_again(loan: Loan, finished: Finished) -> Finished:
    """How a job ended in its branch, with the hold that it had before."""
    return ended(msgspec.structs.replace(finished.job, hold=loan.job.hold), finished.outcome)
