"""Run pipelines: subscribe, supervise one for one, drain, kill."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from reactivex import Observable
from reactivex.disposable import SerialDisposable, SingleAssignmentDisposable
from reactivex.observer import Observer

from rxjobs.awaiting import LoopScheduler
from rxjobs.calls import Executor
from rxjobs.declared import Pipeline
from rxjobs.demand import settle
from rxjobs.errors import InvalidOption, PipelineBroken, WornOut
from rxjobs.event_stream import EventStream
from rxjobs.events import PipelineRestarted, PipelineStarted, PipelineStopped
from rxjobs.executors.memory import resident
from rxjobs.failure import describe
from rxjobs.hold import DROPPED_DELAY, Tenure
from rxjobs.job import Job
from rxjobs.ledger import Ledger
from rxjobs.log_lines import Indented, logger
from rxjobs.operators.stage import on_the_loop
from rxjobs.outcome import Finished, Release
from rxjobs.scope import Scope, within
from rxjobs.stopping import PATIENCE, left_behind

log = logger("rxjobs.runner")

LAST_WRITES = 3.0
"""Seconds that a killed pipeline's last outcomes get to be written down."""
LOOK = 0.02
UNTIL_EXIT = 5.0
"""Seconds that a process surely needs no more of to end, once its jobs have."""
LOOK_AT_WEAR = 1.0
"""Seconds between looks at what was left behind."""
YOUNG, OLDER, OLDEST = range(3)
"""Generations of Python's garbage collector."""
MOST_LEFT_BEHIND = 64
"""As many coroutines that do not stop are as many too many: they take memory, and time of the event loop."""


class Supervised:
    """One running pipeline. When it breaks it is subscribed again, later each time; its jobs in flight run on."""

    def __init__(
        self,
        pipeline: Pipeline,
        scope: Scope,
        events: EventStream,
        *,
        on_end: Callable[[], object],
    ) -> None:
        self.pipeline = pipeline
        self.scope = scope
        self.has_ended = False
        self.broken: PipelineBroken | None = None
        self.refused: InvalidOption | None = None
        """Why it cannot run as it was declared."""
        self._events = events
        self._on_end = on_end
        self._subscription = SerialDisposable()
        self._restarts = scope.restarts()
        self._is_waiting = False

    def start(self) -> None:
        """Subscribe for the first time."""
        self._events.emit(PipelineStarted(pipeline=self.pipeline.name))
        self._subscribe()

    def stop(self) -> None:
        """End its sources; it ends by itself after its last ack."""
        self.scope.stop()
        if self._is_waiting:
            self._subscription.dispose()
            self._end()

    def kill(self) -> None:
        """Stop what it runs; its jobs are released."""
        self.scope.kill()
        self._subscription.dispose()
        self._end()

    def _subscribe(self) -> None:
        self._is_waiting = self.scope.is_breaking = False
        # the slot is there first: the stream may break, and be subscribed again, inside `subscribe`
        slot = SingleAssignmentDisposable()
        self._subscription.disposable = slot
        with within(self.scope):
            try:
                slot.disposable = self.pipeline.stream.subscribe(
                    on_the_loop(Observer(on_error=self._break, on_completed=self._end), self.scope.scheduler, reach_end),
                    scheduler=self.scope.scheduler,
                )
            except Exception as error:
                self._break(error)

    def _break(self, error: Exception) -> None:
        self.scope.is_breaking = True
        if isinstance(error, InvalidOption):  # it would be refused again
            self.refused = error
            self._end()
            return
        failure = describe(error)
        # logged as text, and let go: whoever keeps the error would keep the jobs that lie in its frames
        error.__traceback__ = None
        name = self.pipeline.name
        if self.scope.stopping:
            log.error("pipeline %s broke while it was stopped\n%s", name, Indented(failure.traceback))
            self._end()
        elif (delay := self._restarts.delay(self.scope.scheduler.loop.time())) is None:
            self.broken = PipelineBroken(
                f"pipeline {name} broke {self._restarts.count + 1} times in {self._restarts.window:g} s, the last time with "
                f"{failure.type}: {failure.message}"
            )
            log.critical("%s\n%s", self.broken, Indented(failure.traceback))
            self._end()
        else:
            log.error("pipeline %s broke, and is subscribed again in %.1f s\n%s", name, delay, Indented(failure.traceback))
            self._events.emit(PipelineRestarted(pipeline=name, error=failure, delay=delay))
            self._is_waiting = True
            self._subscription.disposable = self.scope.scheduler.later(delay, self._subscribe)

    def _end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            self._is_waiting = False
            self._events.emit(PipelineStopped(pipeline=self.pipeline.name))
            self._on_end()


class Running:
    """The pipelines of an app while they run."""

    def __init__(
        self,
        pipelines: Sequence[Pipeline],
        scheduler: LoopScheduler,
        events: EventStream,
        *,
        max_restarts: int,
        restart_window: float,
        max_memory: int = 0,
        executors: Callable[[], Iterable[Executor]] = tuple,
    ) -> None:
        self.events: Observable[Any] = events
        self.is_cut_off = False
        """Whether this node is without a lease, so that it must not claim anything."""
        self.tenure = Tenure()
        """Until when it may begin what it holds."""
        self._scheduler = scheduler
        self._executors = executors
        self._max_memory = max_memory
        self._changed = asyncio.Event()
        self._cancelling: frozenset[tuple[int, int]] = frozenset()
        self._pipelines = [
            Supervised(
                pipeline,
                Scope(
                    scheduler,
                    events.emit,
                    supervised=True,
                    name=pipeline.name,
                    max_restarts=max_restarts,
                    restart_window=restart_window,
                    tenure=self.tenure,
                ),
                events,
                on_end=self._changed.set,
            )
            for pipeline in pipelines
        ]

    @property
    def held_ids(self) -> set[int]:
        """The ids of the jobs that are fetched and not yet acked."""
        return set().union(*(one.scope.held_ids for one in self._pipelines))

    @property
    def scopes(self) -> list[Scope]:
        """Where its pipelines run."""
        return [one.scope for one in self._pipelines]

    @property
    def ledgers(self) -> list[Ledger]:
        """What the pulls hold of those pipelines that are not to end."""
        return [ledger for one in self._pipelines if not one.scope.stopping for ledger in one.scope.ledgers]

    @property
    def running_ids(self) -> set[int]:
        """The ids of the jobs that a stage works on."""
        return {job.id for one in self._pipelines for job in one.scope.running}

    def start(self) -> None:
        """Subscribe every pipeline; raises InvalidOption, with all of them ended, where one cannot run as it was declared."""
        for one in self._pipelines:
            one.start()
        refused = next((one.refused for one in self._pipelines if one.refused is not None), None)
        if refused is not None:
            for one in self._pipelines:
                one.kill()
                one.scope.close()
            raise refused

    async def wait(self) -> None:
        """Wait until every pipeline has ended by itself.

        Raises PipelineBroken when one broke too often, and InvalidOption when one cannot run as it was declared.

        Raises WornOut where only a new process can help: so much code runs on that was cancelled and does not stop, or there is
        more in memory than is allowed.
        """
        while not all(one.has_ended for one in self._pipelines):
            self._raise_if_broken()
            self._raise_if_worn_out()
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), LOOK_AT_WEAR)
        self._raise_if_broken()

    def cut_off(self) -> None:
        """Give up the jobs that are held under this node's lease: what can be stopped is, and what has not begun never does.

        All of them are released, as soon as that can be written. Code that cannot be stopped, which is a plain function in a
        thread, runs on and keeps its claim: its outcome counts if nobody has taken the job by then.
        """
        self.is_cut_off = True
        for one in self._pipelines:
            one.scope.cut_off()
        self._scheduler.later(PATIENCE, self._tell_what_runs_on)

    def restore(self) -> None:
        """The node has a lease again."""
        self.is_cut_off = False

    def cancel(self, claims: frozenset[tuple[int, int]]) -> None:
        """Stop those of the jobs that are to be cancelled, given by their ids and attempts; none of them begins any more."""
        if claims or self._cancelling:
            self._cancelling = claims
            for one in self._pipelines:
                one.scope.cancel(claims)

    async def stop(self, grace: float, *, ends_process: bool = False) -> None:
        """End: fetching stops at once, jobs in flight get `grace` seconds, the rest are stopped and released, all is written down.

        A job whose code does not stop is not released, so that nobody runs it meanwhile, and its lease will free it; unless the
        process ends now, and that code with it: then it is released for long enough that it surely has.
        """
        for one in self._pipelines:
            one.stop()
        if not await self._until(self._is_idle, grace):
            log.warning("%d jobs did not end within %g s, and are released", len(self.held_ids), grace)
        for one in self._pipelines:
            one.kill()
        await self._until(lambda: not self.running_ids, PATIENCE)
        if not await self._until(self._collected(self._is_written), LAST_WRITES):
            unwritten = sorted(self.held_ids - self.running_ids)
            log.error("the outcomes of jobs %s could not be written down; their lease will free them", unwritten[:100])
        if self.running_ids and ends_process:
            await self._release_what_ends_with_the_process()
        elif self.running_ids:
            log.error("jobs %s do not stop, and are not released; their lease will free them", sorted(self.running_ids)[:100])
        for one in self._pipelines:
            one.scope.close()

    async def _release_what_ends_with_the_process(self) -> None:
        jobs = [job for one in self._pipelines for job in one.scope.running]
        log.warning("jobs %s do not stop: they end with this process, and are released", sorted(job.id for job in jobs)[:100])
        for job in jobs:
            settle(Finished(job, Release(UNTIL_EXIT, "its process ended")))
        await self._until(lambda: not self.held_ids, LAST_WRITES)

    async def close_executors(self) -> None:
        """End the threads and processes that jobs and stages run on."""
        for executor in self.executors:
            await executor.close()

    @property
    def executors(self) -> set[Executor]:
        """What jobs and stages run on."""
        return {*self._executors(), *(executor for one in self._pipelines for executor in one.scope.executors)}

    def _collected(self, fact: Callable[[], bool]) -> Callable[[], bool]:
        """The fact, for which garbage is collected as long as jobs lie in an operator's buffer: they are released when that is.

        Of everything in memory last: where that is millions of objects, it holds up the event loop for seconds.
        """
        generations = iter((YOUNG, OLDER, OLDEST))

        def after_collecting() -> bool:
            if self._lying_ids and (generation := next(generations, None)) is not None:
                gc.collect(generation)
            return fact()

        return after_collecting

    @property
    def _lying_ids(self) -> set[int]:
        """The ids of the jobs that are held, and that no stage works on, and that are not written down."""
        return self.held_ids - self.running_ids - {id_ for one in self._pipelines for id_ in one.scope.ending_ids}

    async def _until(self, fact: Callable[[], bool], seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not fact():
            if loop.time() >= end:
                return False
            await asyncio.sleep(LOOK)
        return True

    def _is_idle(self) -> bool:
        return all(one.has_ended and one.scope.is_idle for one in self._pipelines)

    def _is_written(self) -> bool:
        """Whether what has ended is, and nothing more can come."""
        return self.held_ids <= self.running_ids and not any(one.scope.is_fetching for one in self._pipelines)

    def _tell_what_runs_on(self) -> None:
        lost = {job.id for one in self._pipelines for job in one.scope.running if job.hold is not None and job.hold.is_lost}
        if lost:
            log.error("jobs %s do not stop, and may overlap with their next attempt on another node", sorted(lost)[:100])

    def _raise_if_worn_out(self) -> None:
        for executor in self.executors:
            if getattr(executor, "is_worn_out", False):
                raise WornOut(f"{executor!r} has no thread left to put in the place of those whose jobs do not stop")
        stubborn = sum(isinstance(one, asyncio.Task) for one in left_behind())
        if stubborn >= MOST_LEFT_BEHIND:
            raise WornOut(f"{stubborn} jobs were cancelled and do not stop")
        taken = resident() if self._max_memory else 0
        if taken > self._max_memory:
            raise WornOut(f"this process takes {taken:,} bytes of memory, and max_memory is {self._max_memory:,}")

    def _raise_if_broken(self) -> None:
        for one in self._pipelines:
            if (error := one.broken or one.refused) is not None:
                raise error


def reach_end(item: Any) -> None:
    """The end of a pipeline: what is finished and was not acked is acked here, and what is not finished is released."""
    if isinstance(item, Finished):  # as nearly all are
        settle(item)
        return
    for one in item if isinstance(item, list) else [item]:
        match one:
            case Finished():
                settle(one)
            case Job(hold=hold) if hold is not None and not hold.settled:
                log.warning(
                    "job %s (%s) of queue %s came to the end of its pipeline without having been run, and is released for %g s; "
                    "the pipeline lacks rj.execute() or rj.complete()",
                    one.id, one.type, one.queue, DROPPED_DELAY,
                )  # fmt: skip
                settle(Finished(one, Release(DROPPED_DELAY, "its pipeline has no stage that settles it")))
            case _:  # operators that end a pipeline may make anything of what is acked
                pass
