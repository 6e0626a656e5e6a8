"""Have a pull's demand follow its load."""

from __future__ import annotations

import time

import reactivex as rx
from reactivex import Observable, abc

from rxjobs.autoscaling import Autoscale, Depth, Load, Measured, Step, decide
from rxjobs.awaiting import every, let_others, scheduler_here
from rxjobs.events import AutoscaleStep
from rxjobs.ledger import Ledger
from rxjobs.log_lines import logger

log = logger("rxjobs.autoscale")

LEAST_SECONDS = 0.1
"""How long a process must be looked at for its share of a processor to mean anything."""


class Full:
    """Whether a fetch has given all that was asked for since the last look."""

    def __init__(self) -> None:
        self._is_full = False

    def fetched(self, asked: int, came: int) -> None:
        """A fetch was answered."""
        self._is_full = self._is_full or came >= asked

    def look(self) -> bool:
        """Whether one has; from now on, whether another will have."""
        was, self._is_full = self._is_full, False
        return was


def autoscale(how: Autoscale, ledger: Ledger, full: Full) -> Observable[Step]:
    """The decision at each look, which has been put into effect.

    While its queue is paused, or scaled by `app.queues.scale`, it rests: what is asked for by hand goes first, and is not stepped
    away from. Scaled back to as is declared, it goes on from where it was.
    """

    def follow(scheduler: abc.SchedulerBase) -> Observable[Step]:
        loop = scheduler_here(scheduler).loop
        processor = _Processor()
        due = loop.time()

        async def look() -> Step:
            nonlocal due
            began = loop.time()
            await let_others()  # which takes as long as everything that is ready to run
            late = loop.time() - min(began, due)
            demand = ledger.demand
            if ledger.is_paused or demand.is_resized:
                step = Step(demand.max_demand, "its queue is paused" if ledger.is_paused else "it is scaled by hand")
            else:
                depth = await _depth(ledger, how.most)
                load = Load(
                    demand=demand.max_demand, held=demand.held, depth=depth, came_back_full=full.look(), loop_delay=late,
                    cpu=processor.share(),
                )  # fmt: skip
                step = decide(how, load)
                if not demand.is_resized:  # it may have been while it was looked
                    _take(step, ledger, load)
            due = loop.time() + how.every
            return step

        return every(lambda: how.every, look, exactly=True)

    return rx.defer(follow)


async def _depth(ledger: Ledger, most: int) -> Depth | None:
    source = ledger.source
    if not isinstance(source, Measured):
        return None
    try:
        return await source.depth(most)
    except Exception as error:  # a source's own; to know less is no reason to stop
        log.warning("%r could not say how many jobs are ready: %r", source, error)
        return None


def _take(step: Step, ledger: Ledger, load: Load) -> None:
    if step.demand == load.demand:
        return
    ledger.demand.follow(step.demand)
    source = getattr(ledger.source, "queue", None) or repr(ledger.source)
    log.info("max_demand of %s is %d, was %d: %s", source, step.demand, load.demand, step.reason)
    ledger.emit(
        AutoscaleStep(
            source=source,
            before=load.demand,
            after=step.demand,
            reason=step.reason,
            ready=None if load.depth is None else load.depth.ready,
            oldest_seconds=None if load.depth is None else load.depth.oldest_seconds,
            loop_delay=load.loop_delay,
            cpu=load.cpu,
        )
    )


class _Processor:
    """How much of one processor this process takes."""

    def __init__(self) -> None:
        self._at, self._used = time.monotonic(), time.process_time()

    def share(self) -> float:
        """Since it was asked last: 1.0 is all of one processor, 0.0 too short a time to tell."""
        at, used = time.monotonic(), time.process_time()
        seconds = at - self._at
        if seconds < LEAST_SECONDS:
            return 0.0
        share = (used - self._used) / seconds
        self._at, self._used = at, used
        return share
