"""How far jobs say that they have come, on its way to where that is kept: the last word of each, now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol, runtime_checkable

from rxjobs.awaiting import LoopScheduler
from rxjobs.job import Job
from rxjobs.log_lines import logger

log = logger("rxjobs")

PAUSE = 0.5
"""Seconds between two writes at least."""


class Report(NamedTuple):
    """What a job says about how far it has come."""

    job: Job
    fraction: float
    message: str


@runtime_checkable
class Keeping(Protocol):
    """A source that keeps how far its jobs have come."""

    async def keep_progress(self, reports: Sequence[Report]) -> None: ...


class Reports:
    """What the jobs of one pull say. What is said while nothing may be written waits; of one job only the last word."""

    def __init__(self, source: object, scheduler: LoopScheduler) -> None:
        self._keeps = source if isinstance(source, Keeping) else None
        self._scheduler = scheduler
        self._waiting: dict[int, Report] = {}
        self._is_pausing = False
        self._writing = asyncio.Lock()
        """What is said later is written later, whichever connection it goes over."""

    def add(self, report: Report) -> None:
        """Take what a job says, from any thread; lost where its source keeps nothing of the kind."""
        if self._keeps is not None:
            with suppress(RuntimeError):  # its loop has just been closed
                self._scheduler.here(lambda: self._add(report))

    def _add(self, report: Report) -> None:
        self._waiting[report.job.id] = report
        if not self._is_pausing:
            self._is_pausing = True
            self._scheduler.start(self.write(), lambda _: self._pause(), lambda _: self._pause())

    def _pause(self) -> None:
        self._scheduler.later(PAUSE, self._go_on)

    def _go_on(self) -> None:
        self._is_pausing = False
        if self._waiting:
            self._add(next(iter(self._waiting.values())))

    async def write(self) -> None:
        """Write down what waits. Where that fails it is lost: the next word says more, and no job is to fail for it."""
        if self._keeps is None or not (self._waiting or self._writing.locked()):
            return
        async with self._writing:
            reports, self._waiting = list(self._waiting.values()), {}
            if reports:
                await self._keep(self._keeps, reports)

    async def _keep(self, keeping: Keeping, reports: Sequence[Report]) -> None:
        try:
            await keeping.keep_progress(reports)
        except Exception as error:
            log.warning("the progress of %d jobs could not be written down: %s", len(reports), str(error) or type(error).__name__)
