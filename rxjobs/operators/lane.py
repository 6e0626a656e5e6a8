"""One branch of a dispatcher while it is subscribed: what it holds, and what becomes of it when it breaks.

Inside, a job travels as a copy whose hold is on loan. So however it is settled there, or let go, the dispatcher is told once.
"""

from __future__ import annotations

from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

import msgspec
from reactivex import abc
from reactivex.disposable import SerialDisposable, SingleAssignmentDisposable
from reactivex.observer import Observer
from reactivex.subject import Subject

from rxjobs.demand import now
from rxjobs.errors import NotOpen
from rxjobs.events import BranchRestarted, Emit
from rxjobs.failure import describe
from rxjobs.hold import Acked, Hold, Root, Tenure
from rxjobs.job import Job
from rxjobs.log_lines import Indented, logger
from rxjobs.operators.branch import Branch
from rxjobs.operators.stage import Item, Stream, on_the_loop
from rxjobs.outcome import Finished, Outcome, Release
from rxjobs.scope import Scope, scope_here, within

log = logger("rxjobs.dispatch")


class Loan:
    """A job that a branch has, in place of the ledger of its pull. `note` is the dispatcher's own."""

    __slots__ = ("job", "lane", "note")
    tenure = Tenure()

    def __init__(self, job: Job, lane: Lane, note: Any) -> None:
        self.job = job
        self.lane = lane
        self.note = note

    @property
    def era(self) -> int:
        """0, as when it was lent, unless its node was cut off since it was asked for."""
        return int(self.job.hold is not None and self.job.hold.is_lost)

    @property
    def is_paused(self) -> bool:
        """Whether its queue is."""
        return self.job.hold is not None and self.job.hold.ledger.is_paused

    @property
    def cancelling(self) -> frozenset[tuple[int, int]]:
        """The jobs that are to be cancelled."""
        return frozenset() if self.job.hold is None else self.job.hold.ledger.cancelling

    @property
    def emit(self) -> Emit:
        """Where the pipeline tells what happens."""
        return self.lane.scope.emit

    @property
    def root(self) -> Root | None:
        """The ledger of the pull that its job came from."""
        return None if self.job.hold is None else self.job.hold.root

    def settle(self, finished: Finished, then: Acked | None = None) -> None:
        """It was settled inside its branch."""
        finished.job.hold.settled = True
        self.lane.settled(self, finished, then)

    def dropped(self, job: Job, outcome: Outcome | None) -> None:
        """It was let go inside its branch; may be called from any thread, by the garbage collector."""
        try:
            self.lane.scope.scheduler.here(lambda: self.lane.dropped(self, outcome))
        except RuntimeError:
            log.debug("job %s was dropped while its event loop closed; its lease will free it", job.id)


class Lender(Protocol):
    """Who gives jobs to a lane, and is told what becomes of them."""

    def came(self, loan: Loan, item: Item) -> Item | None:
        """A job came out of its branch, for the first time; gives what goes on down the stream."""

    def came_again(self, loan: Loan, item: Item) -> Item | None:
        """The same, of a job that was settled before, such as by an rj.ack() in the branch."""

    def settled(self, loan: Loan, finished: Finished, then: Acked | None) -> None:
        """A job was settled inside its branch."""

    def dropped(self, loan: Loan, outcome: Outcome | None) -> None:
        """A job was let go inside its branch, maybe after it had ended."""

    def emit(self, item: Any) -> None:
        """Something is to go on down the stream."""

    def look_at(self, lane: Lane) -> None:
        """A lane may have room, or has ended."""

    def fail(self, error: Exception) -> None:
        """A branch broke too often."""

    def abandon(self) -> None:
        """A branch broke that is not subscribed again, since its pipeline is to stop."""


class Way:
    """A branch as one pipeline has it. Its operators are applied once, so that what they keep outlives restarts."""

    def __init__(self, branch: Branch, most_held: int | None) -> None:
        self.branch = branch
        self._lanes: WeakKeyDictionary[Scope, ref[Lane]] = WeakKeyDictionary()
        self._last: ref[Lane] | None = None
        most = branch.concurrency if most_held is None else min(branch.concurrency, most_held)
        self.stream = branch(Stream(self._subscribe, most))

    def lead_to(self, lane: Lane) -> None:
        """Have what subscribes in the lane's pipeline hear its jobs."""
        self._lanes[lane.scope] = self._last = ref(lane)

    def _subscribe(self, observer: abc.ObserverBase[Job], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        try:
            found = self._lanes.get(scope_here(scheduler), self._last)
        except NotOpen:  # an operator subscribes on a thread of its own
            found = self._last
        lane = None if found is None else found()
        if lane is None:
            raise NotOpen("a branch was subscribed by itself; it is subscribed by its rj.balance, rj.broadcast or rj.partition")
        return lane.hear(observer)


class Lane:
    """One branch, subscribed. It is supervised as a pipeline is: when it breaks it is subscribed again, its siblings go on."""

    def __init__(self, way: Way, name: str, place: int, scope: Scope, lender: Lender) -> None:
        self.way = way
        self.name = name
        self.place = place
        self.scope = scope
        self.held = 0
        self.has_ended = False
        self.is_leaving = False
        """Whether it is given no more jobs, and ends once it has none."""
        self.is_down = False
        """Whether it broke and is not subscribed again yet."""
        self._lender = lender
        self._jobs: Subject[Job] = Subject()
        self._is_heard = False
        self._back_at = 0.0
        self._restarts = scope.restarts()
        self._subscription = SerialDisposable()

    @property
    def free(self) -> int:
        """How many more jobs it takes now."""
        if not self._is_heard or self.is_down or self.has_ended or self.is_leaving or not self._jobs.observers:
            return 0
        return self.way.branch.concurrency - self.held

    def start(self) -> None:
        """Subscribe its operators."""
        self.is_down = self._is_heard = False
        self._jobs = Subject()
        self.way.lead_to(self)
        # the slot is there first: the branch may break, and be subscribed again, inside `subscribe`
        slot = SingleAssignmentDisposable()
        self._subscription.disposable = slot
        told = on_the_loop(Observer(on_error=self._break, on_completed=self._end), self.scope.scheduler, self._take)
        with within(self.scope):
            try:
                slot.disposable = self.way.stream.subscribe(told, scheduler=self.scope.scheduler)
            except Exception as error:
                self._break(error)

    def hear(self, observer: abc.ObserverBase[Job]) -> abc.DisposableBase:
        """Subscribe to its jobs."""
        jobs, here = self._jobs, self.scope.scheduler

        def ready() -> None:
            if jobs is self._jobs:
                self._is_heard = True
                self._lender.look_at(self)

        subscription = jobs.subscribe(observer)
        # a tick later: an operator that splits the stream subscribes more than once, and each is to hear all
        here.here(lambda: here.later(0, ready))
        return subscription

    def lend(self, job: Job, note: Any = None) -> None:
        """Give it a job."""
        self.held += 1
        fetched = now() if job.hold is None else job.hold.fetched
        try:
            self._jobs.on_next(msgspec.structs.replace(job, hold=Hold(job.told, Loan(job, self, note), fetched, 0)))
        except Exception as error:
            self._break(error)

    def close(self) -> None:
        """Give it no more jobs: it ends once it has none."""
        if self.is_leaving or self.has_ended:
            return
        self.is_leaving = True
        if self.is_down:
            self._end()
        else:
            self._jobs.on_completed()

    def dispose(self) -> None:
        """Take nothing more from it. What it runs may end, and is settled then."""
        self.has_ended = True
        self._subscription.dispose()

    def settled(self, loan: Loan, finished: Finished, then: Acked | None) -> None:
        """A job that it has was settled inside."""
        self.held -= 1
        self._lender.settled(loan, finished, then)
        self._lender.look_at(self)

    def dropped(self, loan: Loan, outcome: Outcome | None) -> None:
        """A job that it has was let go inside: by an operator, or because the branch broke."""
        self.held -= 1
        if self.is_down and outcome is None:
            # not before the branch is there again: the job may be what breaks it, and its siblings
            delay = max(0.0, self._back_at - self.scope.scheduler.loop.time())
            self._lender.settled(loan, Finished(loan.job, Release(delay, f"its branch {self.name} broke")), None)
        else:
            self._lender.dropped(loan, outcome)
        self._lender.look_at(self)

    def _take(self, item: Any) -> None:
        out = [one for one in map(self._taken, item) if one is not None] if isinstance(item, list) else self._taken(item)
        if out is not None and out != []:
            self._lender.emit(out)
        self._lender.look_at(self)

    def _taken(self, item: Any) -> Any:
        job = item.job if isinstance(item, Finished) else item
        hold = job.hold if isinstance(job, Job) else None
        loan = None if hold is None else hold.ledger
        if hold is None or not isinstance(loan, Loan) or loan.lane._lender is not self._lender:
            return item  # operators that end a branch may make anything of what is acked
        if hold.settled:
            return self._lender.came_again(loan, item)
        hold.settled = True
        loan.lane.held -= 1
        return self._lender.came(loan, item)

    def _break(self, error: Exception) -> None:
        if self.is_down or self.has_ended:
            return
        self.is_down = True
        failure, name, scope = describe(error), self.name, self.scope
        # logged as text, and let go: whoever keeps the error would keep the jobs that lie in its frames
        error.__traceback__ = None
        time = scope.scheduler.loop.time()
        if scope.stopping or self.is_leaving:
            log.error("branch %s broke while it was stopped\n%s", name, Indented(failure.traceback))
            if scope.stopping:
                self._lender.abandon()
            self._end()
        elif (delay := self._restarts.delay(time)) is None:
            log.error("branch %s broke too often, which breaks its pipeline\n%s", name, Indented(failure.traceback))
            self._lender.fail(error)
        else:
            log.error("branch %s broke, and is subscribed again in %.1f s\n%s", name, delay, Indented(failure.traceback))
            scope.emit(BranchRestarted(pipeline=scope.name, branch=name, error=failure, delay=delay))
            self._back_at = time + delay
            self._subscription.disposable = scope.scheduler.later(delay, self.start)

    def _end(self) -> None:
        if not self.has_ended:
            self.dispose()
            self._lender.look_at(self)
