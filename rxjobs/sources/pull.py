"""The operator that turns a source into an Observable which never outruns demand."""

from __future__ import annotations

from collections import deque

from reactivex import Observable, abc
from reactivex import operators as ops
from reactivex.disposable import CompositeDisposable, Disposable

from rxjobs.autoscaling import Autoscale, Step
from rxjobs.batches import tell_fetched
from rxjobs.demand import Demand, let_go, now
from rxjobs.errors import InvalidOption
from rxjobs.job import Job
from rxjobs.ledger import Ledger
from rxjobs.operators.stage import Stream
from rxjobs.scope import Scope, scope_here
from rxjobs.services.autoscale import Full, autoscale
from rxjobs.source import Control, Controlled, Source

TURN = 0.002
"""Seconds for which jobs are handed on in one go."""
REST = 0.02
"""Seconds for which a source that was notified of jobs, and had none left, is not asked for another notification: of a herd that
hears of one job all but one ask in vain."""
NOTIFY, TIMER, DEMAND = "notify", "timer", "demand"
"""What causes a fetch: a notification, a look that is due, or room for more."""


def pull(source: Source, *, max_demand: int | Autoscale, min_demand: int | None = None) -> Observable[Job]:
    """The jobs of a source, asked for as there is room for them.

    Never more than `max_demand` jobs are held, which is fetched and not yet acked. The source is asked when at most
    `min_demand` (default: half) are held, for no more than there is room, one fetch at a time; or in one step with the ack
    that makes the room, where it can do both. `max_demand` is a number, or follows the load: `rj.autoscale(1, 10)`.

        demand    3 ──────────── 2 ──────── 3
        source    a b c          d e        f g h
        pull    ──a-b-c──────────d-e────────f-g-h──
    """
    if not callable(getattr(source, "fetch", None)) or not callable(getattr(source, "settle", None)):
        raise InvalidOption(f"rj.pull takes a source of jobs, which has wakes, fetch and settle, not {source!r:.100}")
    most = max_demand.max if isinstance(max_demand, Autoscale) else max_demand
    Demand(most, min_demand)  # options are checked where they enter
    key = object()

    def demand() -> Demand:
        made = Demand(most, min_demand)
        if isinstance(max_demand, Autoscale):
            made.follow(max_demand.min)
        return made

    def subscribe(observer: abc.ObserverBase[Job], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        scope = scope_here(scheduler)
        ledger = scope.ledger(key, source, demand)
        return _Pulling(ledger, observer, scope, max_demand if isinstance(max_demand, Autoscale) else None).start()

    return Stream(subscribe, most)


def _demand_of(step: Step) -> int:
    return step.demand


class _Pulling:
    """One subscription to a pull."""

    def __init__(self, ledger: Ledger, observer: abc.ObserverBase[Job], scope: Scope, autoscale: Autoscale | None) -> None:
        self._ledger = ledger
        self._autoscale = autoscale
        self._full = Full()
        self._observer = observer
        self._scope = scope
        self._may_have_more = True  # sources are asked on start: a wake sent before was not heard
        self._trigger = DEMAND
        self._asked = 0, DEMAND, 0
        """How many jobs were asked for last by a fetch, why, and when: by this process's own clock, ns."""
        self._is_flowing = False
        """Whether all that was asked for last was there."""
        self._is_resting = False
        self._was_woken = False
        """Whether a notification came meanwhile."""
        self._held_before = 0
        self._fetched_jobs: deque[Job] = deque()
        self._is_emitting = False
        self._is_last = False
        self._ended = False
        self._joined: abc.DisposableBase = Disposable()

    def start(self) -> abc.DisposableBase:
        here = self._scope.scheduler.here
        wakes = self._ledger.source.wakes.subscribe(
            lambda item: here(lambda: self._wake(NOTIFY if isinstance(item, str) else TIMER)),
            lambda error: here(lambda: self._fail(error)), lambda: here(self._no_more_wakes),
            scheduler=self._scope.scheduler,
        )  # fmt: skip
        stop = self._scope.on_stop(self._stop)
        self._joined = self._ledger.join(self)
        controls, load = self._follow(self._ledger.source), self._follow_load()
        self._ask()
        return CompositeDisposable(wakes, stop, controls, load, Disposable(self._dispose))

    def _follow(self, source: Source) -> abc.DisposableBase:
        if not isinstance(source, Controlled):
            return Disposable()
        here = self._scope.scheduler.here
        return source.controls.subscribe(
            lambda control: here(lambda: self._obey(control)), lambda error: here(lambda: self._fail(error)),
            scheduler=self._scope.scheduler,
        )  # fmt: skip

    def _follow_load(self) -> abc.DisposableBase:
        if self._autoscale is None:
            return Disposable()
        here = self._scope.scheduler.here
        steps = autoscale(self._autoscale, self._ledger, self._full)
        demands: Observable[int] = steps.pipe(ops.map(_demand_of), ops.distinct_until_changed())
        return demands.subscribe(
            lambda _: here(self._wake), lambda error: here(lambda: self._fail(error)), scheduler=self._scope.scheduler
        )

    def _obey(self, control: Control) -> None:
        """What has not begun when its queue is paused goes back, also from where it waits for its turn; what runs may end."""
        demand = self._ledger.demand
        before = demand.max_demand, self._ledger.is_paused
        demand.resize(control.max_demand)
        self._ledger.is_paused = control.is_paused
        if control.is_paused:
            self._scope.recall(self._ledger)
        if before != (demand.max_demand, control.is_paused):  # what is known first is most often that nothing is asked
            self._wake()

    def _wake(self, trigger: str = DEMAND) -> None:
        if trigger == NOTIFY and self._is_resting:
            self._was_woken = True
            return
        self._may_have_more = True
        self._trigger = trigger
        self._ask()

    def _rest(self) -> None:
        self._is_resting = True
        if self._trigger == NOTIFY:  # one that came during the fetch
            self._was_woken, self._may_have_more = self._may_have_more, False
        self._scope.scheduler.later(REST, self._rested)

    def _rested(self) -> None:
        self._is_resting = False
        if self._was_woken:
            self._was_woken = False
            self._wake(NOTIFY)

    def room(self, must_ask: bool) -> None:
        """Jobs were acked. Asked once more as demand rises past the mark, even of a source that had nothing left to give."""
        demand = self._ledger.demand
        if must_ask or demand.held <= demand.min_demand < self._held_before:
            self._may_have_more = True
            self._trigger = DEMAND
        self._held_before = demand.held
        self._ask()

    @property
    def takes_more(self) -> bool:
        """Whether it takes jobs, and its source may have more."""
        return not self._ended and (self._may_have_more or self._is_flowing)

    @property
    def is_handing_on(self) -> bool:
        """Whether some of what was fetched last is still to be handed on."""
        return bool(self._fetched_jobs)

    def asked(self) -> None:
        """The source is asked with outcomes that are written down."""
        self._may_have_more = False

    def exchanged(self, jobs: list[Job], asked: int, began: int) -> None:
        """So it answers."""
        self._take(jobs, asked, DEMAND, began)

    def _ask(self) -> None:
        self._ledger.send_if_stuck()
        free = self._ledger.room
        if self._ended or self._ledger.is_asked or not self._may_have_more or not free or self._ledger.is_paused:
            return
        self._may_have_more = False
        self._asked = free, self._trigger, now()
        self._ledger.fetch(free, self._fetched, self._failed_to_fetch)

    def _fetched(self, jobs: list[Job]) -> None:
        self._take(jobs, *self._asked)

    def _take(self, jobs: list[Job], asked: int, trigger: str, began: int) -> None:
        tell_fetched(self._ledger.emit, self._ledger.source, asked, jobs, trigger, began)
        if self._ended or self._ledger.is_paused:
            self._ledger.give_back(jobs, "its pipeline was stopped" if self._ended else "its queue is paused")
            self._ledger.tell_room()
            return
        fetched = now()
        self._full.fetched(asked, len(jobs))
        if not jobs and trigger == NOTIFY:
            self._rest()
        if len(jobs) > asked:
            self._ledger.give_back(jobs[asked:], "its source gave more jobs than it was asked for")
            jobs = jobs[:asked]
        self._is_flowing = len(jobs) == asked
        if self._is_flowing:
            self._may_have_more = True
            self._trigger = DEMAND
        goes_on = bool(self._fetched_jobs)
        self._fetched_jobs.extend([self._ledger.hold(job, fetched) for job in jobs])
        self._held_before = self._ledger.demand.held
        self._ask()  # before what came is handed on, so that PostgreSQL and this process work at the same time
        if goes_on:
            return
        if self._ledger.is_asked:
            self._scope.scheduler.later(0, self._emit_some)
        else:
            self._emit_some()

    def _emit_some(self) -> None:
        """Hand on what was fetched, for a moment: then what has ended is written down, and others on the loop get their turn."""
        time = self._scope.scheduler.loop.time  # the loop's own: on virtual time a busy machine changes no order
        end = time() + TURN
        self._is_emitting = True
        # once disposed it is handed on to nobody, who drops it
        while self._fetched_jobs and (self._ended or time() < end):
            try:
                # popped, so that a job which an operator drops is let go at once
                self._observer.on_next(self._fetched_jobs.popleft())
            except Exception as error:
                self._fail(error)
        self._is_emitting = False
        if self._fetched_jobs:
            self._scope.scheduler.later(0, self._emit_some)
            return
        if self._ended:
            self._joined.dispose()
        self._ledger.tell_room()
        self._end_if_last()

    def _give_back(self, reason: str) -> None:
        """Release what was fetched and not handed on."""
        while self._fetched_jobs:
            let_go(self._fetched_jobs.popleft(), reason)

    def _failed_to_fetch(self, error: BaseException) -> None:
        requested, trigger, began = self._asked
        tell_fetched(self._ledger.emit, self._ledger.source, requested, [], trigger, began, error)
        self._fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        self._ledger.tell_room()

    def _no_more_wakes(self) -> None:
        self._is_last = True
        self._wake()
        self._end_if_last()

    def _end_if_last(self) -> None:
        if self._is_last and not self._ledger.is_fetching and not self._may_have_more and not self._fetched_jobs:
            self._stop()

    def _fail(self, error: Exception) -> None:
        if not self._ended:
            self._ended = True
            self._observer.on_error(error)

    def _stop(self) -> None:
        if not self._ended:
            self._ended = True
            self._ledger.give_up_fetch()
            self._give_back("its pipeline was stopped")
            self._observer.on_completed()

    def _dispose(self) -> None:
        self._ended = True
        # an operator that ends the stream while it is handed a job has dropped the rest
        if not self._is_emitting or self._scope.is_breaking:
            self._joined.dispose()
            self._give_back("its pipeline was stopped")
