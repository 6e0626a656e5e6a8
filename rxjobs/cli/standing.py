"""When a process that was just started can be counted on: its pipelines run, and go on running."""

from __future__ import annotations

import asyncio
from typing import Any

import reactivex as rx
from reactivex import Observable, abc
from reactivex import operators as ops

from rxjobs.awaiting import LoopScheduler
from rxjobs.events import PipelineRestarted, PipelineStarted, PipelineStopped

PROBATION = 1.0
"""Seconds in which a pipeline that cannot run has broken."""


def running(events: Observable[Any]) -> Observable[Any]:
    """The first pipeline that runs.

    events:  -a--S--S--b-->
    running: ----(S|)
    """
    # the first alone: on the hot path an event that nobody hears is not even made
    return events.pipe(ops.filter(lambda event: isinstance(event, PipelineStarted)), ops.take(1))


def standing(events: Observable[Any], scheduler: abc.SchedulerBase | None = None) -> Observable[Any]:
    """Emits once, when pipelines run and none of them has broken for a while. R is a pipeline that broke and is subscribed again.

    events:   -S-R------->
    standing: --------(0|)
    """

    def wait(state: tuple[int, float]) -> Observable[int]:
        count, seconds = state
        return rx.timer(seconds, scheduler=scheduler or LoopScheduler(asyncio.get_running_loop())) if count else rx.never()

    told = ops.filter(lambda event: isinstance(event, PipelineStarted | PipelineStopped | PipelineRestarted))
    return events.pipe(told, ops.scan(_follow, (0, 0.0)), ops.switch_map(wait), ops.take(1))


def _follow(before: tuple[int, float], event: PipelineStarted | PipelineStopped | PipelineRestarted) -> tuple[int, float]:
    """How many pipelines run, and for how long none has to break."""
    count, _ = before
    match event:
        case PipelineStarted():
            return count + 1, PROBATION
        case PipelineStopped():
            return count - 1, PROBATION
        case PipelineRestarted(delay=delay):
            return count, delay + PROBATION
