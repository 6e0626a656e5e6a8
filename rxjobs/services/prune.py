"""Delete finished jobs that were kept long enough."""

from __future__ import annotations

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.events import Emit
from rxjobs.services.lead import Leadership
from rxjobs.services.maintenance import Done, maintained
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

BATCH = 1000
EVERY_SECONDS, STANDBY_SECONDS = 60.0, 1.0
BETWEEN_BATCHES = 0.05


def prune(
    store: Store, leadership: Leadership, keep: float, emit: Emit | None = None, keep_discarded: float | None = None
) -> Observable[int]:
    """How many jobs the leader deleted, again and again, a small batch at a time. Dead letters may have a time of their own."""
    wait = EVERY_SECONDS

    async def once() -> int:
        nonlocal wait
        wait, term = EVERY_SECONDS, leadership.term
        if term is None:
            wait = STANDBY_SECONDS
            return 0

        async def work() -> Done:
            found = await patiently(
                "pruning finished jobs", lambda: store.prune_jobs(keep, BATCH, leadership.node, term, keep_discarded)
            )
            return Done(found.total(), found)

        pruned = await maintained(emit, "prune", work)
        wait = BETWEEN_BATCHES if pruned == BATCH else EVERY_SECONDS
        return pruned

    return every(lambda: wait, once)
