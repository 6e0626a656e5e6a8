"""Let jobs pass no faster than at a rate: a token bucket, or one for each key."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable, SerialDisposable

from rxjobs.counted import Passing
from rxjobs.demand import ended
from rxjobs.errors import InvalidOption
from rxjobs.job import Job
from rxjobs.operators.keys import By, key_of
from rxjobs.operators.lingering import Lingering, pull_of
from rxjobs.operators.stage import Item, Operator, behind, check_count, fail, one_by_one
from rxjobs.outcome import Release
from rxjobs.scope import Scope, scope_here

HAIR = 1e-6
"""Seconds that a timer may be early: a clock adds floats."""
LONGEST = 3600.0
"""Seconds that a job is given back for at most: by then the rate may be another."""
SWEEP_SECONDS = 1.0
"""How often buckets are looked through at most for those that are full again, which need not be remembered."""
STOPPED = "its pipeline was stopped before it could begin"
TOO_MANY = "too many jobs of its key wait for their turn already"


def rate_limit(
    n: int,
    *,
    per: float = 1.0,
    burst: int | None = None,
    by: By | None = None,
    name: str = "rate_limit",
    traced: bool = False,
) -> Operator:
    """Let `n` jobs pass `per` seconds, and up to `burst` (default: n) at once after a pause: a token bucket.

    With `by`, a function of a job or a name such as "args.tenant", each key has a bucket of its own. Keys do not wait for each
    other: what waits takes at most `min_demand` places in the demand of its pull, shared between the keys that wait; more jobs of a
    key go back to their queue (Release) until about when it is their turn, for an hour at most. So the jobs of other keys are
    fetched, and memory is bounded by what is held and by the keys of the last `burst / n * per` seconds.

    Jobs that wait when the pipeline is asked to stop are given back at once (Release), since they have not begun: it does not last
    longer because of them. Where the source ends by itself they pass at their rate, and then the stream completes. The rate is that
    of this stage in this process; in several branches, of each branch. `traced` makes a span of how long each job waited, where its
    trace is recorded, and not only of those that waited over 5 ms.

        ──abcd──────────────
          rate_limit(2, per=4, burst=2)
        ──ab──c─d───────────
    """
    check_count("rate_limit", "n", n)
    if isinstance(per, bool) or not isinstance(per, int | float) or not 0 < per < 10**9:
        raise InvalidOption(f"rj.rate_limit: per is a number of seconds above 0, not {per!r}")
    if burst is not None:
        check_count("rate_limit", "burst", burst)
    key = None if by is None else key_of("rate_limit", by)
    counted = Passing(name, traced=traced)

    def operator(source: Observable[Any]) -> Observable[Any]:
        place = object()

        def subscribe(observer: abc.ObserverBase[Any], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            scope = scope_here(scheduler)
            # kept through restarts: a pipeline that breaks again and again is no faster
            rate = scope.kept(place, lambda: Rate(n, per, n if burst is None else burst))
            return _Limiting(rate, key, observer, scope, counted).start(source)

        return behind(source, subscribe)

    return operator


class _Bucket:
    __slots__ = ("full_at", "promised")

    def __init__(self, now: float) -> None:
        self.full_at = now
        """When it is full again if nothing is taken: all there is to remember of its tokens."""
        self.promised = now
        """Until when jobs that were given back have their turns."""


class Rate:
    """Token buckets, by key. Times are seconds of the event loop's clock."""

    def __init__(self, n: int, per: float, burst: int) -> None:
        self._interval = per / n
        self._slack = (burst - 1) * self._interval
        self._buckets: dict[Hashable, _Bucket] = {}

    @property
    def window(self) -> float:
        """Seconds in which an empty bucket is full again."""
        return self._slack + self._interval

    def wait(self, key: Hashable, now: float) -> float:
        """Seconds until a key has a token."""
        bucket = self._buckets.get(key)
        return 0.0 if bucket is None else max(0.0, bucket.full_at - self._slack - now)

    def take(self, key: Hashable, now: float) -> None:
        """Take a token."""
        bucket = self._bucket(key, now)
        bucket.full_at = max(bucket.full_at, now) + self._interval

    def promise(self, key: Hashable, ahead: int, now: float) -> float:
        """Seconds until it is the turn of one more job, behind so many that wait and those that were promised a turn before."""
        bucket = self._bucket(key, now)
        turn = now + self.wait(key, now) + ahead * self._interval
        bucket.promised = max(turn, bucket.promised + self._interval)
        return bucket.promised - now

    def forget(self, now: float) -> int:
        """Forget the buckets that are as new; gives how many are left."""
        left = {key: bucket for key, bucket in self._buckets.items() if max(bucket.full_at, bucket.promised) > now}
        self._buckets = left
        return len(left)

    def __len__(self) -> int:
        return len(self._buckets)

    def _bucket(self, key: Hashable, now: float) -> _Bucket:
        if key not in self._buckets:
            self._buckets[key] = _Bucket(now)
        return self._buckets[key]


class _Waiting(NamedTuple):
    job: Job
    since: float


class _Limiting:
    """One subscription: the jobs that wait, in a lane for each key, and one timer for whatever comes first."""

    def __init__(
        self,
        rate: Rate,
        key: Callable[[Job], Hashable] | None,
        observer: abc.ObserverBase[Any],
        scope: Scope,
        counted: Passing,
    ) -> None:
        self._rate = rate
        self._key = key
        self._observer = observer
        self._scope = scope
        self._counted = counted
        self._lanes: dict[Hashable, deque[_Waiting]] = {}
        self._waiting = 0
        self._due: list[tuple[float, int, Hashable]] = []
        """When which lane may have a token: one entry for each."""
        self._sweep_at: float | None = None
        self._order = itertools.count()
        self._timer = SerialDisposable()
        self._timer_at: float | None = None
        self._has_ended = False
        self._lingering = Lingering(self._take_out, self._jobs, counted)

    def start(self, source: Observable[Any]) -> abc.DisposableBase:
        here = self._scope.scheduler
        self._scope.watch(self._lingering)
        self._scope.count(self._counted)
        stop = self._scope.on_stop(self._give_all_back)  # before the source hears of it, and completes
        told = one_by_one(self._observer, here, "rate_limit", self._take, on_completed=self._end)
        upstream = source.subscribe(told, scheduler=here)
        return CompositeDisposable(upstream, stop, Disposable(lambda: here.here(self._leave)))

    @property
    def _now(self) -> float:
        return self._scope.scheduler.loop.time()

    def _take(self, item: Item) -> None:
        if not isinstance(item, Job):
            self._observer.on_next(item)
            return
        self._counted.went_in += 1
        try:
            key = self._key(item) if self._key is not None else None
            hash(key)
        except Exception as error:
            self._observer.on_next(self._counted.settle(fail(item, error)))
            return
        self._let_pass_or_wait(item, key)

    def _let_pass_or_wait(self, job: Job, key: Hashable) -> None:
        now, lane = self._now, self._lanes.get(key)
        if lane is None and self._rate.wait(key, now) <= HAIR:
            self._rate.take(key, now)
            self._arm()
            self._counted.let_pass(job, 0.0)
            self._observer.on_next(job)
        elif self._scope.stopping:
            self._observer.on_next(self._counted.settle(ended(job, Release(reason=STOPPED))))
        elif self._crowds_out(job, lane):
            delay = self._rate.promise(key, len(lane or ()), now)
            self._observer.on_next(self._counted.settle(ended(job, Release(min(delay, LONGEST), TOO_MANY))))
        else:
            self._wait(job, key, now)

    def _crowds_out(self, job: Job, lane: deque[_Waiting] | None) -> bool:
        """Whether it would take a place that jobs of other keys could need."""
        ledger = None if self._key is None else pull_of(job)
        if ledger is None:
            return False
        places, keys = ledger.demand.min_demand, len(self._lanes) + (lane is None)
        return self._waiting >= places or len(lane or ()) >= max(1, places // (keys + 1))

    def _wait(self, job: Job, key: Hashable, now: float) -> None:
        if key not in self._lanes:
            self._lanes[key] = deque()
            heapq.heappush(self._due, (now + self._rate.wait(key, now), next(self._order), key))
        self._lanes[key].append(_Waiting(job, now))
        self._waiting += 1
        self._arm()

    def _arm(self) -> None:
        """Set the timer to what comes first: a token that a job waits for, or a look for buckets that are full."""
        if self._sweep_at is None and self._key is not None and len(self._rate):
            self._sweep_at = self._now + max(SWEEP_SECONDS, self._rate.window)
        first = min((at for at in (self._due[0][0] if self._due else None, self._sweep_at) if at is not None), default=None)
        if first == self._timer_at:
            return
        self._timer_at = first
        if first is None:
            self._timer.disposable = Disposable()
        else:
            self._timer.disposable = self._scope.scheduler.later(max(0.0, first - self._now), self._ring)

    def _ring(self) -> None:
        self._timer_at = None
        try:
            while self._due and self._due[0][0] <= self._now + HAIR:
                self._serve(heapq.heappop(self._due)[2])
        except Exception as error:
            self._observer.on_error(error)
        if self._sweep_at is not None and self._sweep_at <= self._now + HAIR:
            self._sweep_at = None
            self._rate.forget(self._now)
        self._arm()
        self._complete_if_last()

    def _serve(self, key: Hashable) -> None:
        """Let the first of a lane pass, if it has a token now."""
        lane, now = self._lanes[key], self._now
        if (wait := self._rate.wait(key, now)) > HAIR:
            heapq.heappush(self._due, (now + wait, next(self._order), key))
            return
        self._rate.take(key, now)
        waiting = lane.popleft()
        self._waiting -= 1
        if lane:
            heapq.heappush(self._due, (now + self._rate.wait(key, now), next(self._order), key))
        else:
            del self._lanes[key]
        self._counted.let_pass(waiting.job, now - waiting.since)
        self._observer.on_next(waiting.job)

    def _give_all_back(self) -> None:
        for job in self._take_out(lambda _: True):
            self._observer.on_next(self._counted.settle(ended(job, Release(reason=STOPPED))))

    def _jobs(self) -> list[Job]:
        return [waiting.job for lane in tuple(self._lanes.values()) for waiting in tuple(lane)]

    def _take_out(self, which: Callable[[Job], bool]) -> list[Job]:
        taken = [waiting.job for lane in self._lanes.values() for waiting in lane if which(waiting.job)]
        if taken:
            lanes = {key: deque(one for one in lane if not which(one.job)) for key, lane in self._lanes.items()}
            self._lanes = {key: lane for key, lane in lanes.items() if lane}
            self._due = [entry for entry in self._due if entry[2] in self._lanes]
            heapq.heapify(self._due)
            self._waiting -= len(taken)
            self._arm()
            # a tick later: what was taken out is settled first
            self._scope.scheduler.later(0, self._complete_if_last)
        return taken

    def _end(self) -> None:
        self._has_ended = True
        self._complete_if_last()

    def _complete_if_last(self) -> None:
        if self._has_ended and not self._lanes:
            self._timer.disposable = Disposable()
            self._observer.on_completed()

    def _leave(self) -> None:
        self._lingering.detach()
        self._timer.dispose()
