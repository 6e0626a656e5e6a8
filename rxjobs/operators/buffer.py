"""Gather jobs into lists."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable, SerialDisposable

from rxjobs.counted import Passing
from rxjobs.errors import InvalidOption
from rxjobs.job import Job
from rxjobs.ledger import Ledger
from rxjobs.operators.lingering import Lingering, pull_of
from rxjobs.operators.stage import Operator, Stream, behind, check_callable, check_count, fail, items, on_the_loop, working_on
from rxjobs.scope import Scope, scope_here

Measure = Callable[[Job], float]


def buffer(
    count: int | None = None,
    timespan: float | None = 1.0,
    *,
    size: float | None = None,
    measure: Measure | None = None,
    name: str = "buffer",
    traced: bool = False,
) -> Operator:
    """Lists of up to `count` jobs and up to `size`; one that is not full goes on `timespan` seconds after its first job came.

    `size` is in bytes of the jobs' arguments, or of whatever `measure(job)` counts; a job that is larger by itself goes alone.

    `traced` makes a span of how long each job waited, where its trace is recorded, and not only of those that waited over 5 ms.

    A list also goes on, as it is, where it could never be full: every job that its source may hold waits in it. Without a timespan
    (None) it waits however long otherwise, and a `count` larger than the source's `max_demand` is refused: where the stages between
    are rxjobs' own when the pipeline is declared, else when it is started.

        ──a─b─c───d──────────
          buffer(3, 5 s)
        ──────[abc]─────[d]──
    """
    if count is not None:
        check_count("buffer", "count", count)
    for option, value in (("timespan", timespan), ("size", size)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf):
            unit = "seconds" if option == "timespan" else "bytes, or of what measure counts,"
            raise InvalidOption(f"rj.buffer: {option} is a number of {unit} above 0, or None, not {value!r}")
    if measure is not None:
        check_callable("buffer", "measure", measure)
        if size is None:
            raise InvalidOption("rj.buffer: measure says how large a job is, and needs size=, how large a list may be")
    if count is None and timespan is None:
        raise InvalidOption("rj.buffer: give a count or a timespan; of size alone nobody knows whether it is ever reached")
    limits = _Limits(count, size, measure or bytes_of_args)
    counted = Passing(name, traced=traced, room=count or 0)

    def operator(source: Observable[Any]) -> Observable[Any]:
        if timespan is None and isinstance(source, Stream):
            limits.check(source.most_held)

        def subscribe(observer: abc.ObserverBase[Any], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            scope = scope_here(scheduler)
            return _Gathering(limits, timespan, observer, scope, counted).start(source)

        return behind(source, subscribe)

    return operator if count is None else working_on(operator, count)


def bytes_of_args(job: Job) -> int:
    """What a job's arguments take as JSON."""
    # a job that was made by hand may have none written
    return len(job.payload.encode()) if job.payload != "{}" or not job.args else len(msgspec.json.encode(job.args))


def _most_held(pulls: list[Ledger]) -> int:
    return sum(ledger.demand.declared for ledger in pulls)


class _Limits(msgspec.Struct, frozen=True):
    count: int | None
    size: float | None
    measure: Measure

    def check(self, most_held: int | None) -> None:
        """Refuse a count that can never be reached."""
        if most_held is not None and self.count is not None and self.count > most_held:
            raise InvalidOption(
                f"rj.buffer({self.count}, None) waits for {self.count} jobs, but its source holds {most_held} at most "
                f"(max_demand), so that no list would ever be full: raise max_demand to {self.count} or more, lower the count, "
                "or give a timespan"
            )

    def of(self, job: Job) -> float:
        """How large a job is; raises TypeError for what is no size."""
        if self.size is None:
            return 0.0
        size = self.measure(job)
        if isinstance(size, bool) or not isinstance(size, int | float) or not 0 <= size < math.inf:
            raise TypeError(f"rj.buffer: measure gives a number of at least 0, not {size!r:.100}")
        return size


class _Gathering:
    """One subscription: the list that is being gathered."""

    def __init__(
        self, limits: _Limits, timespan: float | None, observer: abc.ObserverBase[Any], scope: Scope, counted: Passing
    ) -> None:
        self._limits = limits
        self._timespan = timespan
        self._observer = observer
        self._scope = scope
        self._counted = counted
        self._jobs: list[Job] = []
        self._sizes: list[float] = []
        self._since: list[float] = []
        self._size = 0.0
        self._timer = SerialDisposable()
        self._lingering = Lingering(self._take_out, lambda: self._jobs, counted)

    def start(self, source: Observable[Any]) -> abc.DisposableBase:
        here = self._scope.scheduler
        self._scope.watch(self._lingering)
        self._scope.count(self._counted)
        with self._scope.seeing_pulls() as pulls:
            upstream = source.subscribe(on_the_loop(self._observer, here, self._take, self._end), scheduler=here)
        if self._timespan is None and pulls:
            try:
                self._limits.check(_most_held(pulls))
            except InvalidOption:
                upstream.dispose()
                raise
        elif self._timespan is None:  # a merge, for one, subscribes its sources later
            here.later(0, self._check)
        return CompositeDisposable(upstream, Disposable(lambda: here.here(self._leave)))

    def _check(self) -> None:
        pulls = self._scope.ledgers  # which of them it is behind is not known any more
        try:
            self._limits.check(_most_held(pulls) if pulls else None)
        except InvalidOption as error:
            self._observer.on_error(error)

    def _take(self, item: Any) -> None:
        for one in items(self._counted.name, item):
            if isinstance(one, Job):
                self._gather(one)
            else:
                self._observer.on_next(one)

    def _gather(self, job: Job) -> None:
        limits = self._limits
        self._counted.went_in += 1
        try:
            size = limits.of(job)
        except Exception as error:
            self._observer.on_next(self._counted.settle(fail(job, error)))
            return
        if self._jobs and limits.size is not None and self._size + size > limits.size:
            self._send()
        self._jobs.append(job)
        self._sizes.append(size)
        self._since.append(self._scope.scheduler.loop.time())
        self._size += size
        self._wait_for_more(job, 1)
        if len(self._jobs) == limits.count or (limits.size is not None and self._size >= limits.size):
            self._send()
            return
        if len(self._jobs) == 1 and self._timespan is not None:
            self._timer.disposable = self._scope.scheduler.later(self._timespan, self._send_now)
        if (ledger := pull_of(job)) is not None:
            ledger.send_if_stuck()

    def _wait_for_more(self, job: Job, change: int) -> None:
        if (ledger := pull_of(job)) is not None:
            ledger.wait_for_more(change, self._send_now)

    def _send(self) -> None:
        since, time = self._since, self._scope.scheduler.loop.time()
        if jobs := self._take_out(lambda _: True):
            self._counted.let_pass_together(jobs, [time - at for at in since])
            self._observer.on_next(jobs)

    def _send_now(self) -> None:
        try:
            self._send()
        except Exception as error:
            self._observer.on_error(error)

    def _take_out(self, which: Callable[[Job], bool]) -> list[Job]:
        taken = [job for job in self._jobs if which(job)]
        left = [one for one in zip(self._jobs, self._sizes, self._since, strict=True) if not which(one[0])]
        self._jobs, self._sizes, self._since = [one[0] for one in left], [one[1] for one in left], [one[2] for one in left]
        self._size = sum(self._sizes)
        if not self._jobs:
            self._timer.disposable = Disposable()
        for job in taken:
            self._wait_for_more(job, -1)
        return taken

    def _end(self) -> None:
        self._send()
        self._observer.on_completed()

    def _leave(self) -> None:
        self._timer.dispose()
        self._lingering.detach()
