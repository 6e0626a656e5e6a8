"""Delete finished jobs that were kept long enough."""

from __future__ import annotations

from datetime import datetime, timedelta

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.events import Emit
from rxjobs.services.lead import Leadership
from rxjobs.services.maintenance import Done, maintained
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store
from rxjobs.store.tending import Tending

BATCH = 1000
EVERY_SECONDS, STANDBY_SECONDS = 60.0, 1.0
BETWEEN_BATCHES = 0.05
OVERLAP, ANEW = timedelta(minutes=5), 60
"""What ended a little before where a look came to is looked at once more, and all of it each so many rounds."""


def prune(
    store: Store, leadership: Leadership, keep: float, emit: Emit | None = None, keep_discarded: float | None = None
) -> Observable[int]:
    """How many jobs the leader deleted, again and again, a small batch at a time. Dead letters may have a time of their own.

    What they stand among is not read again each time: what has ended since the last look is enough. Where the history is
    partitioned, the periods that are over are dropped whole, and those that come are made.
    """
    wait = EVERY_SECONDS
    since: datetime | None = None
    rounds = 0
    tending = Tending(store, keep, keep_discarded)

    async def once() -> int:
        nonlocal wait, since, rounds
        wait, term = EVERY_SECONDS, leadership.term
        if term is None:
            wait, since = STANDBY_SECONDS, None
            return 0

        up_to: datetime | None = None
        by_row = 0

        async def work() -> Done:
            nonlocal up_to, by_row
            states, up_to = await patiently(
                "pruning finished jobs", lambda: store.prune_jobs(keep, BATCH, leadership.node, term, keep_discarded, since)
            )
            by_row = states.total()
            states += await tending.once(leadership.node, term)
            return Done(states.total(), states)

        pruned = await maintained(emit, "prune", work)
        if by_row == BATCH or tending.is_not_done:
            wait = BETWEEN_BATCHES
        else:
            rounds += 1
            since = None if up_to is None or rounds % ANEW == 0 else up_to - OVERLAP
        return pruned

    return every(lambda: wait, once)
