"""What every stage has in common: jobs are worked on, what is finished passes, lists are taken one by one, all on the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from threading import get_ident
from typing import Any, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable

from rxjobs.awaiting import Awaited, LoopScheduler
from rxjobs.calls import Executor
from rxjobs.counted import SAMPLE, SLOW, Counted
from rxjobs.decide import raised, resolve
from rxjobs.demand import ended, let_go, now
from rxjobs.errors import InvalidOption
from rxjobs.job import Job
from rxjobs.outcome import Finished, Outcome, Release
from rxjobs.perform import tell_end, waited
from rxjobs.scope import scope_here

Item = Job | Finished
Operator = Callable[[Observable[Any]], Observable[Any]]

CONCURRENCY = "concurrency"
"""The attribute of a stage that says how many jobs it works on at once."""

T = TypeVar("T")


class Stream(Observable[Any]):
    """An Observable of jobs that knows how many of them its sources hold at most, where that can be told (else None).

    reactivex's own operators hide what they were put on: behind one it is not known before the pipeline is subscribed.
    """

    def __init__(self, subscribe: abc.Subscription[Any], most_held: int | None) -> None:
        super().__init__(subscribe)
        self.most_held = most_held


def behind(source: Observable[Any], subscribe: abc.Subscription[Any]) -> Stream:
    """What a stage makes of the stream that it was put on."""
    return Stream(subscribe, source.most_held if isinstance(source, Stream) else None)


def finish(job: Job, outcome: Outcome) -> Finished:
    """The job with how it ended, by the retry rule."""
    return _end(job, resolve(job, outcome))


def fail(job: Job, error: BaseException) -> Finished:
    """The job with the failure of a stage, by the retry rule. Of the error's traceback its text is kept."""
    finished = _end(job, raised(job, error))
    _let_go_of_frames(error)
    return finished


def _let_go_of_frames(error: BaseException | None) -> None:
    """Whoever keeps the error, such as a listener that keeps events, would keep the job that lies in its frames, and its place."""
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        _let_go_of_frames(error.__cause__)
        error = error.__context__


def _end(job: Job, outcome: Outcome) -> Finished:
    """What a stage settles ends an attempt as a run does, and is made known like one: it began with its claim."""
    hold = job.hold
    if hold is None:
        return Finished(job, outcome)
    began = hold.fetched
    return ended(job, tell_end(hold.ledger.emit, job, outcome, waited(job, began), now() - began))


def on_the_loop(
    observer: abc.ObserverBase[Any],
    scheduler: LoopScheduler,
    on_next: Callable[[Any], object],
    on_completed: Callable[[], object] | None = None,
) -> abc.ObserverBase[Any]:
    """An observer that may be told from any thread, and does what it is told on the loop."""
    return _OnTheLoop(observer, scheduler, on_next, on_completed or observer.on_completed)


def each(kind: str, work: Callable[[Job], Item], counted: Counted) -> Operator:
    """A stage that answers at once."""

    def operator(source: Observable[Any]) -> Observable[Any]:
        def subscribe(observer: abc.ObserverBase[Any], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            scope = scope_here(scheduler)
            scope.count(counted)
            here = scope.scheduler

            def take(job: Job) -> None:
                began = now()
                item = work(job)
                took = now() - began
                counted.went_in += 1
                if type(item) is Finished or took > SLOW or counted.traced or not counted.went_in & SAMPLE:
                    counted.worked(job, item, took)
                observer.on_next(item)

            return source.subscribe(on_the_loop(observer, here, one_by_one(kind, take, observer.on_next)), scheduler=here)

        return behind(source, subscribe)

    return operator


def each_awaited(
    kind: str,
    work: Callable[[Job], Coroutine[Any, Any, Item]],
    concurrency: int,
    counted: Counted,
    on: Executor | None = None,
) -> Operator:
    """A stage that works on up to `concurrency` jobs at once, with the help of an executor; `work` itself counts them."""
    check_count(kind, "concurrency", concurrency)

    def operator(source: Observable[Any]) -> Observable[Any]:
        def subscribe(observer: abc.ObserverBase[Any], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            scope = scope_here(scheduler)
            here = scope.scheduler
            if on is not None:
                scope.executors.add(on)
            running: Awaited[Job, Item] = Awaited(work, concurrency, observer, here, let_go)
            scope.watch(running)
            scope.count(counted)
            counted.working.add(running)

            on_next = one_by_one(kind, running.add, observer.on_next)
            return CompositeDisposable(
                source.subscribe(on_the_loop(observer, here, on_next, running.end), scheduler=here),
                Disposable(lambda: here.here(lambda: scope.detach(running))),
            )

        return behind(source, subscribe)

    return working_on(operator, concurrency)


def working_on(operator: Operator, concurrency: int) -> Operator:
    """The operator, which says that it works on so many jobs at once."""
    setattr(operator, CONCURRENCY, concurrency)
    return operator


def one_by_one(
    name: str, take: Callable[[Any], object], take_finished: Callable[[Any], object] | None = None
) -> Callable[[Any], None]:
    """Take the jobs in what comes down the stream, one by one, and those that are finished, in another way where one is given.

    Raises TypeError for what is neither.
    """
    passed_on = take if take_finished is None else take_finished

    def on_next(item: Any) -> None:
        if isinstance(item, Finished):
            passed_on(item)
        elif isinstance(item, Job) and (item.hold is None or item.hold.recalled is None):  # as nearly all are
            take(item)
        else:
            for one in items(name, item):
                (passed_on if isinstance(one, Finished) else take)(one)

    return on_next


def items(name: str, item: Any) -> list[Item]:
    """The jobs in what came down the stream; raises TypeError for what is none."""
    if isinstance(item, Job | Finished):
        return [_unless_recalled(item)]
    if isinstance(item, list) and all(isinstance(one, Job | Finished) for one in item):
        return [_unless_recalled(one) for one in item]
    raise TypeError(
        f"rj.{name} takes jobs, and got {type(item).__name__}: an operator before it made something else of them; "
        "use rj.enrich to add to a job, or rj.map to replace it"
    )


def _unless_recalled(item: Item) -> Item:
    if isinstance(item, Job) and item.hold is not None and (reason := item.hold.recalled):
        return ended(item, Release(reason=reason))
    return item


def check_count(name: str, option: str, value: Any) -> None:
    """Refuse what is no whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidOption(f"rj.{name}: {option} is a whole number of at least 1, not {value!r}")


def check_callable(name: str, option: str, value: Any) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise InvalidOption(f"rj.{name}: {option} is a function of a job, not {value!r}")


class _OnTheLoop(abc.ObserverBase[Any]):
    """Hops to the loop where needed, in order. A stage that raises breaks its pipeline: a job's failure is a value by then."""

    def __init__(
        self,
        observer: abc.ObserverBase[Any],
        scheduler: LoopScheduler,
        on_next: Callable[[Any], object],
        on_completed: Callable[[], object],
    ) -> None:
        self._observer = observer
        self._scheduler = scheduler
        self._on_next = on_next
        self._on_completed = on_completed
        self._thread = scheduler.thread
        self._on_the_way: deque[Callable[[], object]] = deque()

    def on_next(self, value: Any) -> None:
        if self._on_the_way or get_ident() != self._thread:
            self._hop(lambda: self._take(value))
            return
        try:
            self._on_next(value)
        except Exception as error:
            self._observer.on_error(error)

    def on_error(self, error: Exception) -> None:
        self._hop(lambda: self._observer.on_error(error))

    def on_completed(self) -> None:
        self._hop(self._on_completed)

    def _take(self, value: Any) -> None:
        try:
            self._on_next(value)
        except Exception as error:
            self._observer.on_error(error)

    def _hop(self, action: Callable[[], object]) -> None:
        # through one queue, so that an end that is told on the loop does not overtake jobs on their way from a thread
        self._on_the_way.append(action)
        self._scheduler.here(self._arrive)

    def _arrive(self) -> None:
        while self._on_the_way:
            self._on_the_way.popleft()()
