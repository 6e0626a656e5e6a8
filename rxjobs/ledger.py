"""What a pull holds: a fetched job takes a place in its demand, and gives it back when its outcome is written down."""

from __future__ import annotations

from asyncio import Task
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from reactivex import abc
from reactivex.disposable import Disposable

from rxjobs.aside import Aside, Settling, Unwritten
from rxjobs.awaiting import LoopScheduler, let_others
from rxjobs.batches import tell_acked
from rxjobs.demand import Demand, now
from rxjobs.events import Emit
from rxjobs.exchange import AT_ONCE, REST_SECONDS, Exchange, Exchanging, Taker
from rxjobs.hold import Acked, Hold, Root, Tenure, Watcher, released_as_dropped
from rxjobs.job import Job
from rxjobs.log_lines import logger
from rxjobs.outcome import Finished, Outcome, Release
from rxjobs.reporting import Reports
from rxjobs.source import Finite, Source
from rxjobs.stopping import is_wish_to_stop

log = logger("rxjobs.demand")

LAST_ANSWER = 2.0
"""Seconds that a source gets to answer once its pipeline is to stop; what it claims by then is given back."""
BURST_SECONDS = 0.02
"""For so long what ends while a burst of jobs is handed on waits for the others of it, which may end at once too."""
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
        self._asked_now = 0
        """How many jobs the fetch on its way asked for."""
        self._pulls: tuple[Taker, ...] = ()
        self._gathered: list[Settling] = []
        self._in_write: list[Settling] = []
        self._aside = Aside(scheduler, self._gather)
        self._writing: Task[None] | None = None
        """The write on its way, or the last one where that failed and is tried again after a while."""
        self._exchanging_source = source if isinstance(source, Exchanging) else None
        self._exchanges: list[Exchange] = []
        self._exchanges_from = 0.0
        """When the next exchange may begin, by the loop's clock."""
        self._is_room_untold = False
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
        """Whether the source was asked for jobs and has not answered."""
        return self._fetching is not None or bool(self._exchanges)

    @property
    def is_asked(self) -> bool:
        """Whether it was by a fetch."""
        return self._fetching is not None

    def fetch(self, n: int, then: Callable[[list[Job]], object], failed: Callable[[BaseException], object]) -> None:
        """Ask the source, once at a time."""

        era = self.era

        def answered(jobs: list[Job]) -> None:
            self._fetching, self._asked_now = None, 0
            self._asked_in = era
            then(jobs)

        def refused(error: BaseException) -> None:
            self._fetching, self._asked_now = None, 0
            failed(error)

        self._asked_now = n
        self._fetching = self._scheduler.start(self._ask(n), answered, refused)

    def give_up_fetch(self) -> None:
        """Wait for an answer for no more than a moment: the database may be away."""
        if self._fetching is not None:
            self._scheduler.later(LAST_ANSWER, self._cancel_fetch)

    def _cancel_fetch(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            self._fetching, self._asked_now = None, 0

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
        for writing in (self._writing, *(exchange.task for exchange in self._exchanges)):
            if writing is not None:
                writing.cancel()

    @property
    def held_ids(self) -> set[int]:
        """The ids of the jobs that are fetched and not yet acked."""
        return set(self._held)

    @property
    def ending_ids(self) -> set[int]:
        """The ids of the jobs whose outcomes are on their way to be written down."""
        return {finished.job.id for finished, _ in (*self._in_write, *self._gathered, *self._exchanging)}

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held, and nothing is about to be."""
        return self.demand.held == 0 and not self.is_fetching

    def join(self, pull: Taker) -> abc.DisposableBase:
        """Have a pull that is subscribed told when there may be room. While there is none, what is let go was not dropped."""
        self._pulls = (*self._pulls, pull)
        return Disposable(lambda: self._leave(pull))

    def tell_room(self, *, must_ask: bool = False) -> None:
        """Have the pulls that are subscribed now ask again, if they want to, or must."""
        pulls = self._pulls
        self._pulls = (*pulls[1:], *pulls[:1])  # each is the first to ask in its turn
        for pull in pulls:
            pull.room(must_ask)

    @property
    def pending(self) -> int:
        """How many outcomes are not written down yet."""
        return len(self._in_write) + len(self._gathered) + len(self._aside) + len(self._exchanging)

    @property
    def is_pulled(self) -> bool:
        """Whether a pull is subscribed."""
        return bool(self._pulls)

    def ask_anew(self) -> None:
        """Wait no longer for an answer, and ask whatever the last one was."""
        self._cancel_fetch()
        self.tell_room(must_ask=True)

    @property
    def _exchanging(self) -> list[Settling]:
        return [settling for exchange in self._exchanges for settling in exchange.settling]

    def _leave(self, pull: Taker) -> None:
        self._pulls = tuple(one for one in self._pulls if one is not pull)

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
            self._writing = self._scheduler.start(self._settle(), _do, self._not_written)

    async def _settle(self) -> Callable[[], object]:
        # taken here, a tick after the first of them: jobs that end in one burst are written down together. But never more than
        # makes room to ask for jobs: the next are fetched while the rest is written.
        most, time = self.demand.worth_asking, self._scheduler.loop.time
        end = time() + BURST_SECONDS
        while len(self._gathered) < most and time() < end and any(pull.is_handing_on for pull in self._pulls):
            await let_others()
        self._in_write, self._gathered = self._gathered[:most], self._gathered[most:]
        self._write_began = now()
        await self.reports.write()
        if (exchange := self._exchange()) is not None:
            return await self._settle_and_fetch(exchange)
        if self._is_room_untold:
            self._is_room_untold = False
            self.tell_room()
        await self.source.settle([finished for finished, _ in self._in_write])
        return self._written

    def _exchange(self) -> Exchange | None:
        """What to fetch with what is about to be written down, where that makes room to ask for jobs."""
        source, demand, settling = self._exchanging_source, self.demand, self._in_write
        if source is None or self.is_paused or len(self._exchanges) == AT_ONCE:
            return None
        if self._scheduler.loop.time() < self._exchanges_from:
            return None
        free = demand.max_demand - demand.held - demand.promised - self._asked_now
        asked = min(free + len(settling), demand.worth_asking)  # each half of what is held: one runs while the other is brought
        taker = next((pull for pull in self._pulls if pull.takes_more), None)
        if demand.held - len(settling) > demand.min_demand or asked < 1 or taker is None:
            return None
        if not source.may_exchange([finished for finished, _ in settling]):
            return None
        return Exchange(source, settling, asked, max(0, asked - len(settling)), taker, self.era, self._write_began, self._writing)

    async def _settle_and_fetch(self, exchange: Exchange) -> Callable[[], object]:
        self._in_write, self._writing = [], None  # others may be written meanwhile
        self._exchanges.append(exchange)
        self.demand.promised += exchange.beyond
        exchange.taker.asked()
        if self._gathered:
            self._write()
        try:
            jobs = await exchange.source.exchange([finished for finished, _ in exchange.settling], exchange.asked)
        except BaseException as error:
            if is_wish_to_stop(error):
                raise
            return partial(self._not_exchanged, exchange, error)
        return partial(self._exchanged, exchange, jobs)

    def _exchanged(self, exchange: Exchange, jobs: list[Job]) -> None:
        self._end(exchange)
        self._free(exchange.settling, exchange.began)
        self._asked_in = exchange.era
        exchange.taker.exchanged(jobs, exchange.asked, exchange.began)
        self.tell_room()
        _tell(exchange.settling)

    def _not_exchanged(self, exchange: Exchange, error: BaseException) -> None:
        """Neither is known to be done: each is done by itself, which changes nothing where it was, and waits where it has to."""
        self._end(exchange)
        self._exchanges_from = self._scheduler.loop.time() + REST_SECONDS
        log.info("outcomes are written and jobs fetched by themselves for %g s, after %r", REST_SECONDS, error)
        self._gathered = [*exchange.settling, *self._gathered]
        if self._writing is None:
            self._write()
        self.tell_room(must_ask=True)

    def _end(self, exchange: Exchange) -> None:
        self._exchanges.remove(exchange)
        self.demand.promised -= exchange.beyond

    def _written(self) -> None:
        self._failures = 0
        self._writing = None
        batch, self._in_write = self._in_write, []
        self._free(batch, self._write_began)
        if self._gathered:
            self._write()  # which may ask for jobs itself
            self._is_room_untold = True
        else:
            self.tell_room()
        _tell(batch)

    def _free(self, batch: list[Settling], began: int) -> None:
        """They are written down: their places are free."""
        tell_acked(self.emit, self.source, [finished for finished, _ in batch], began)
        self.demand.held -= len(batch)
        self.acked += len(batch)
        for finished, _then in batch:
            copies = self._held.pop(finished.job.id) - 1
            if copies:
                self._held[finished.job.id] = copies
        self._aside.wrote_all()

    def _not_written(self, error: BaseException) -> None:
        if isinstance(error, Unwritten):
            self._in_write, left = self._aside.put(self._in_write, error)
            tell_acked(self.emit, self.source, [finished for finished, _ in left], self._write_began, error)
            self._written()
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


def _tell(batch: list[Settling]) -> None:
    for finished, then in batch:
        if then is not None:
            then(finished)


def _do(done: Callable[[], object]) -> None:
    done()
