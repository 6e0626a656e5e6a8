"""Make jobs available whose time has come."""

from __future__ import annotations

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.services.lead import Leadership
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

BATCH = 1000
SOONEST = 0.01


def stage(store: Store, leadership: Leadership, poll_seconds: float) -> Observable[int]:
    """How many jobs the leader made available, again and again: when the next is due, and at the latest after `poll_seconds`."""
    wait = poll_seconds

    async def once() -> int:
        nonlocal wait
        wait, term = poll_seconds, leadership.term
        if term is None:
            return 0
        staged, due = await patiently("staging jobs", lambda: store.stage_jobs(BATCH, leadership.node, term))
        wait = SOONEST if staged == BATCH else max(SOONEST, min(poll_seconds, poll_seconds if due is None else due))
        return staged

    return every(lambda: wait, once)
