"""Raise the priority of jobs that wait for long, so that they run also where there is always something more urgent."""

from __future__ import annotations

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.events import Emit
from rxjobs.services.lead import Leadership
from rxjobs.services.maintenance import Done, maintained
from rxjobs.store.node_statements import BEFORE_ALL, Place
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

BATCH = 1000
"""Of each queue and priority so many of the oldest rise in a round: those behind them wait for them anyway."""
STANDBY_SECONDS = 1.0


def ageing(store: Store, leadership: Leadership, seconds: float, emit: Emit | None = None) -> Observable[int]:
    """How many jobs the leader raised by one step that were ready for longer than so many seconds, again after as many.

    A statement is about one queue and priority, so that nobody is kept from many jobs at once.
    """
    wait = seconds

    async def once() -> int:
        nonlocal wait
        wait, term = seconds, leadership.term
        if term is None:
            wait = min(seconds, STANDBY_SECONDS)
            return 0

        async def step(after: Place) -> tuple[Place, int] | None:
            return await patiently("raising jobs that wait", lambda: store.age_jobs(after, BATCH, seconds, leadership.node, term))

        async def work() -> Done:
            jobs, after = 0, BEFORE_ALL
            while (found := await step(after)) is not None:
                after, raised = found
                jobs += raised
            return Done(jobs)

        return await maintained(emit, "age", work)

    return every(lambda: wait, once)
