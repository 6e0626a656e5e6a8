"""What every stage has in common: jobs are worked on, what is finished passes, lists are taken one by one, all on the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from threading import get_ident
from typing import Any, TypeVar

from reactivex import Observable, abc, typing
from reactivex.disposable import CompositeDisposable, Disposable, SingleAssignmentDisposable
from reactivex.scheduler import CurrentThreadScheduler

from rxjobs.awaiting import Awaited, LoopScheduler
from rxjobs.calls import Executor, checked_executor
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

    def subscribe(
        self,
        on_next: abc.ObserverBase[Any] | typing.OnNext[Any] | None = None,
        on_error: typing.OnError | None = None,
        on_completed: typing.OnCompleted | None = None,
        *,
        scheduler: abc.SchedulerBase | None = None,
    ) -> abc.DisposableBase:
        """As every Observable; a stage that is put on a stage hears from it without an observer of reactivex's in between."""
        if isinstance(on_next, _OnTheLoop):
            return on_next.follow(self._subscribe_core, scheduler)
        return super().subscribe(on_next, on_error, on_completed, scheduler=scheduler)


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


def one_by_one(
    observer: abc.ObserverBase[Any],
    scheduler: LoopScheduler,
    name: str,
    take: Callable[[Any], object],
    take_finished: Callable[[Any], object] | None = None,
    on_completed: Callable[[], object] | None = None,
) -> abc.ObserverBase[Any]:
    """The same for a stage that takes jobs one by one, whatever lists they come in, and those that are finished in its own way.

    What is neither is a TypeError.
    """
    return _OneByOne(name, observer, scheduler, take, take_finished or take, on_completed or observer.on_completed)


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

            return source.subscribe(one_by_one(observer, here, kind, take, observer.on_next), scheduler=here)

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
    if on is not None:
        checked_executor(f"rj.{kind}: on", on)

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

            told = one_by_one(observer, here, kind, running.add, observer.on_next, running.end)
            return CompositeDisposable(
                source.subscribe(told, scheduler=here),
                Disposable(lambda: here.here(lambda: scope.detach(running))),
            )

        return behind(source, subscribe)

    return working_on(operator, concurrency)


def working_on(operator: Operator, concurrency: int) -> Operator:
    """The operator, which says that it works on so many jobs at once."""
    setattr(operator, CONCURRENCY, concurrency)
    return operator


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
        self._is_over = False
        self._subscription = SingleAssignmentDisposable()

    def follow(self, subscribe: abc.Subscription[Any], scheduler: abc.SchedulerBase | None) -> abc.DisposableBase:
        """Subscribe to a stage, which tells what it tells on the loop."""
        self.on_next = self.take  # type: ignore[method-assign]  # each call that each item takes counts

        def begin(*_: object) -> None:
            try:
                self._subscription.disposable = subscribe(self, scheduler)
            except Exception as error:
                if self._is_over:
                    raise
                self._end(partial(self._observer.on_error, error))

        trampoline = CurrentThreadScheduler.singleton()  # as in every Observable: what is subscribed emits once it is
        if trampoline.schedule_required():
            trampoline.schedule(begin)
        else:
            begin()
        return Disposable(lambda: self._end(lambda: None))

    def on_next(self, value: Any) -> None:
        if self._on_the_way or get_ident() != self._thread:
            self._hop(lambda: self.take(value))
        else:
            self.take(value)

    def on_error(self, error: Exception) -> None:
        self._hop(lambda: self._end(lambda: self._observer.on_error(error)))

    def on_completed(self) -> None:
        self._hop(lambda: self._end(self._on_completed))

    def take(self, value: Any) -> None:
        """Do with it on the loop what the stage does."""
        if self._is_over:
            return
        try:
            self._on_next(value)
        except Exception as error:
            self._observer.on_error(error)

    def _end(self, tell: Callable[[], object]) -> None:
        """Nothing more is told, nor wanted."""
        if not self._is_over:
            self._is_over = True
            try:
                tell()
            finally:
                self._subscription.dispose()

    def _hop(self, action: Callable[[], object]) -> None:
        # through one queue, so that an end that is told on the loop does not overtake jobs on their way from a thread
        self._on_the_way.append(action)
        self._scheduler.here(self._arrive)

    def _arrive(self) -> None:
        while self._on_the_way:
            self._on_the_way.popleft()()


class _OneByOne(_OnTheLoop):
    """For a stage that takes jobs, and those that are finished."""

    def __init__(
        self,
        name: str,
        observer: abc.ObserverBase[Any],
        scheduler: LoopScheduler,
        take: Callable[[Any], object],
        take_finished: Callable[[Any], object],
        on_completed: Callable[[], object],
    ) -> None:
        super().__init__(observer, scheduler, take, on_completed)
        self._name = name
        self._take_finished = take_finished

    def take(self, value: Any) -> None:
        """Do with it on the loop what the stage does."""
        if self._is_over:
            return
        try:
            if type(value) is Finished:
                self._take_finished(value)
            elif type(value) is Job and (value.hold is None or value.hold.recalled is None):  # as nearly all are
                self._on_next(value)
            else:
                for one in items(self._name, value):
                    (self._take_finished if isinstance(one, Finished) else self._on_next)(one)
        except Exception as error:
            self._observer.on_error(error)
