"""Delete finished jobs that were kept long enough."""

from __future__ import annotations

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.services.lead import Leadership
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

BATCH = 1000
EVERY_SECONDS = 60.0
BETWEEN_BATCHES = 0.05


def prune(store: Store, leadership: Leadership, keep: float) -> Observable[int]:
    """How many jobs the leader deleted, again and again, a small batch at a time."""
    wait = EVERY_SECONDS

    async def once() -> int:
        nonlocal wait
        wait, term = EVERY_SECONDS, leadership.term
        if term is None:
            return 0
        pruned = await patiently("pruning finished jobs", lambda: store.prune_jobs(keep, BATCH, leadership.node, term))
        wait = BETWEEN_BATCHES if pruned == BATCH else EVERY_SECONDS
        return pruned

    return every(lambda: wait, once)
