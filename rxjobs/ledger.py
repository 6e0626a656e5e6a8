"""What a pull holds: a fetched job takes a place in its demand, and gives it back when its outcome is written down."""

from __future__ import annotations

import logging
from asyncio import Task
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
from reactivex import abc
from reactivex.disposable import Disposable

from rxjobs.aside import Aside, Settling, Unwritten
from rxjobs.awaiting import LoopScheduler
from rxjobs.batches import tell_acked
from rxjobs.demand import Demand, now
from rxjobs.events import Emit
from rxjobs.hold import Acked, Hold, Root, Tenure, Watcher, released_as_dropped
from rxjobs.job import Job
from rxjobs.outcome import Finished, Outcome, Release
from rxjobs.reporting import Reports
from rxjobs.source import Finite, Source

log = logging.getLogger("rxjobs.demand")

LAST_ANSWER = 2.0
"""Seconds that a source gets to answer once its pipeline is to stop; what it claims by then is given back."""
WRITE_DELAYS = (0.1, 30.0)
"""Seconds between tries to write outcomes down: the first, and the longest."""


class Ledger:
    """What one pull holds, and the writing down of how it ended: what gathers during one write goes into the next."""

    def __init__(self, source: Source, demand: Demand, scheduler: LoopScheduler, emit: Emit, tenure: Tenure | None = None) -> None:
        self.source = source
        self.demand = demand
        self._fetching: Task[None] | None = None
        self._scheduler = scheduler
        self.emit = emit
        # counted: a job that was released may be fetched again before its release is known to be written
        self._held: dict[int, int] = {}
        self._pulls: tuple[Callable[[bool], object], ...] = ()
        self._gathered: list[Settling] = []
        self._in_write: list[Settling] = []
        self._aside = Aside(scheduler, self._gather)
        self._writing: Task[None] | None = None
        """The write on its way, or the last one where that failed and is tried again after a while."""
        self._failures = 0
        self._write_began = 0
        self.watchers: tuple[Watcher, ...] = ()
        self.era = 0
        """How often its node was cut off."""
        self.tenure = tenure or Tenure()
        self.acked = 0
        """How many ends of jobs are written down."""
        self.is_paused = False
        """Whether nothing is to be asked for, and nothing that is held to be begun."""
        self.fetched_at = now()
        """When a job was fetched last, by this process's own clock, ns."""
        self.cancelling: frozenset[tuple[int, int]] = frozenset()
        """The jobs that are to be cancelled: their ids, and the attempts."""
        self.reports = Reports(source, scheduler)
        """How far its jobs say that they have come."""
        self._asked_in = 0
        self._is_closed = False
        self._senders: Counter[Callable[[], object]] = Counter()
        """How many jobs wait in which stage for more to join them, and what has them go on without."""

    @property
    def room(self) -> int:
        """How many jobs to ask for now.

        While all that is held has ended, and is only written down, no more than leaves room to ask again when that is done: so
        claims and acks go on side by side, and do not take turns.
        """
        demand, writing = self.demand, self.pending
        return min(demand.free, demand.worth_asking) if writing and writing == demand.held else demand.free

    @property
    def wanted(self) -> int:
        """How many more jobs it would hold now, if there were any."""
        return 0 if self.is_paused else max(0, self.demand.max_demand - self.demand.held)

    @property
    def is_fetching(self) -> bool:
        """Whether the source was asked and has not answered."""
        return self._fetching is not None

    def fetch(self, n: int, then: Callable[[list[Job]], object], failed: Callable[[BaseException], object]) -> None:
        """Ask the source, once at a time."""

        def answered(jobs: list[Job]) -> None:
            self._fetching = None
            then(jobs)

        def refused(error: BaseException) -> None:
            self._fetching = None
            failed(error)

        self._asked_in = self.era
        self._fetching = self._scheduler.start(self._ask(n), answered, refused)

    def give_up_fetch(self) -> None:
        """Wait for an answer for no more than a moment: the database may be away."""
        if self._fetching is not None:
            self._scheduler.later(LAST_ANSWER, self._cancel_fetch)

    def _cancel_fetch(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            self._fetching = None

    async def _ask(self, n: int) -> list[Job]:
        jobs = await self.source.fetch(n)
        if isinstance(jobs, list) and not [job for job in jobs if not isinstance(job, Job)]:
            return jobs
        raise TypeError(f"{self.source!r} was asked for jobs, and gave {jobs!r:.200}")

    def hold(self, job: Job, fetched: int) -> Job:
        """Take a place for a fetched job; the job that is returned carries it."""
        self.demand.held += 1
        self._held[job.id] = self._held.get(job.id, 0) + 1
        self.fetched_at = fetched
        if self.watchers:
            for watcher in self.watchers:
                watcher.claimed(self, job)
        return msgspec.structs.replace(job, hold=Hold(job, self, fetched, self._asked_in))

    def settle(self, finished: Finished, then: Acked | None = None) -> None:
        """Write an outcome down; `then` is told once it is. Must be called on the loop."""
        if self._is_closed:
            job, outcome = finished.job, type(finished.outcome).__name__
            log.warning("job %s (%s) ended after its app: its outcome %s is not written down", job.id, job.type, outcome)
            return
        if self.watchers:
            for watcher in self.watchers:
                watcher.ended(self, finished)
        self._gathered.append((finished, then))
        if self._writing is None:
            self._write()

    def give_back(self, jobs: Sequence[Job], reason: str) -> None:
        """Release fetched jobs that never took a place."""
        self.demand.held += len(jobs)
        for job in jobs:
            self._held[job.id] = self._held.get(job.id, 0) + 1
        for job in jobs:
            self.settle(Finished(job, Release(reason=reason)))

    def dropped(self, job: Job, outcome: Outcome | None) -> None:
        """A job was let go unsettled, maybe after it had ended; may be called from any thread, by the garbage collector."""
        try:
            self._scheduler.here(lambda: self._settle_dropped(job, outcome))
        except RuntimeError:
            log.debug("job %s was dropped while its event loop closed; its lease will free it", job.id)

    @property
    def root(self) -> Root:
        """Its jobs came from here."""
        return self

    def cut_off(self) -> None:
        """Take what was asked for so far for lost."""
        self.era += 1

    def wait_for_more(self, count: int, send: Callable[[], object]) -> None:
        """So many more jobs, or fewer, wait in a stage until others join them; `send` has them go on without."""
        self._senders[send] += count
        if not self._senders[send]:
            del self._senders[send]

    def send_if_stuck(self) -> None:
        """Where all that is held waits for more jobs to join it, and none can come: have it go on without."""
        if not self._senders or self.is_fetching or self._senders.total() < self.demand.held:
            return
        # there is room, and the source may have more, if not now
        if self.demand.free and not (isinstance(self.source, Finite) and self.source.is_exhausted):
            return
        for send in tuple(self._senders):
            send()

    def close(self) -> None:
        """Ask for nothing and write nothing down any more: whatever ends from now on, ends too late."""
        self._is_closed = True
        self._cancel_fetch()
        if self._writing is not None:
            self._writing.cancel()

    @property
    def held_ids(self) -> set[int]:
        """The ids of the jobs that are fetched and not yet acked."""
        return set(self._held)

    @property
    def ending_ids(self) -> set[int]:
        """The ids of the jobs whose outcomes are on their way to be written down."""
        return {finished.job.id for finished, _ in (*self._in_write, *self._gathered)}

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held, and nothing is about to be."""
        return self.demand.held == 0 and not self.is_fetching

    def join(self, on_room: Callable[[bool], object]) -> abc.DisposableBase:
        """Have a pull that is subscribed told when there may be room, and whether to ask whatever it was told before.

        While there is none, what is let go was not dropped.
        """
        self._pulls = (*self._pulls, on_room)
        return Disposable(lambda: self._leave(on_room))

    def tell_room(self, *, must_ask: bool = False) -> None:
        """Have the pulls that are subscribed now ask again, if they want to, or must."""
        pulls = self._pulls
        self._pulls = (*pulls[1:], *pulls[:1])  # each is the first to ask in its turn
        for on_room in pulls:
            on_room(must_ask)

    @property
    def pending(self) -> int:
        """How many outcomes are not written down yet."""
        return len(self._in_write) + len(self._gathered) + len(self._aside)

    @property
    def is_pulled(self) -> bool:
        """Whether a pull is subscribed."""
        return bool(self._pulls)

    def ask_anew(self) -> None:
        """Wait no longer for an answer, and ask whatever the last one was."""
        self._cancel_fetch()
        self.tell_room(must_ask=True)

    def _leave(self, on_room: Callable[[bool], object]) -> None:
        self._pulls = tuple(one for one in self._pulls if one != on_room)

    def _settle_dropped(self, job: Job, outcome: Outcome | None) -> None:
        if outcome is not None:
            log.info("job %s (%s) of queue %s was dropped when it had ended; its end is written down", job.id, job.type, job.queue)
            self.settle(Finished(job, outcome))
        elif self._pulls:
            self.settle(Finished(job, released_as_dropped(job, self.emit)))
        else:
            self.settle(Finished(job, Release(reason="its pipeline was stopped")))

    def _gather(self, settling: list[Settling]) -> None:
        self._gathered += settling
        if self._writing is None:
            self._write()

    def _write(self) -> None:
        if not self._is_closed:
            self._writing = self._scheduler.start(self._settle(), self._written, self._not_written)

    async def _settle(self) -> None:
        # taken here, a tick after the first of them: jobs that end in one burst are written down together. But never more than
        # makes room to ask for jobs: the next are fetched while the rest is written.
        most = self.demand.worth_asking
        self._in_write, self._gathered = self._gathered[:most], self._gathered[most:]
        self._write_began = now()
        await self.reports.write()
        await self.source.settle([finished for finished, _ in self._in_write])

    def _written(self, _: None) -> None:
        self._failures = 0
        self._writing = None
        batch, self._in_write = self._in_write, []
        tell_acked(self.emit, self.source, [finished for finished, _ in batch], self._write_began)
        self.demand.held -= len(batch)
        self.acked += len(batch)
        for finished, _then in batch:
            copies = self._held.pop(finished.job.id) - 1
            if copies:
                self._held[finished.job.id] = copies
        self._aside.wrote_all()
        if self._gathered:
            self._write()
        self.tell_room()
        for finished, then in batch:
            if then is not None:
                then(finished)

    def _not_written(self, error: BaseException) -> None:
        if isinstance(error, Unwritten):
            self._in_write, left = self._aside.put(self._in_write, error)
            tell_acked(self.emit, self.source, [finished for finished, _ in left], self._write_began, error)
            self._written(None)
            return
        # the work is done, so its outcome is kept until it can be written, however long that takes
        first, longest = WRITE_DELAYS
        delay = min(longest, first * 2 ** min(self._failures, 20))
        self._failures += 1
        tell_acked(self.emit, self.source, [finished for finished, _ in self._in_write], self._write_began, error)
        log.error("%d outcomes could not be written down, next try in %g s: %r", len(self._in_write), delay, error)
        self._gathered = [*self._in_write, *self._gathered]
        self._in_write = []
        self._scheduler.later(delay, self._write)
