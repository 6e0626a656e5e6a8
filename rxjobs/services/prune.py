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

BATCH = 1000
EVERY_SECONDS, STANDBY_SECONDS = 60.0, 1.0
BETWEEN_BATCHES = 0.05
OVERLAP, ANEW = timedelta(minutes=5), 60
"""What ended a little before where a look came to is looked at once more, and all of it each so many rounds."""


def prune(
    store: Store, leadership: Leadership, keep: float, emit: Emit | None = None, keep_discarded: float | None = None
) -> Observable[int]:
    """How many jobs the leader deleted, again and again, a small batch at a time. Dead letters may have a time of their own.

    What they stand among is not read again each time: what has ended since the last look is enough.
    """
    wait = EVERY_SECONDS
    since: datetime | None = None
    rounds = 0

    async def once() -> int:
        nonlocal wait, since, rounds
        wait, term = EVERY_SECONDS, leadership.term
        if term is None:
            wait, since = STANDBY_SECONDS, None
            return 0

        up_to: datetime | None = None

        async def work() -> Done:
            nonlocal up_to
            states, up_to = await patiently(
                "pruning finished jobs", lambda: store.prune_jobs(keep, BATCH, leadership.node, term, keep_discarded, since)
            )
            return Done(states.total(), states)

        pruned = await maintained(emit, "prune", work)
        if pruned == BATCH:
            wait = BETWEEN_BATCHES
        else:
            rounds += 1
            since = None if up_to is None or rounds % ANEW == 0 else up_to - OVERLAP
        return pruned

    return every(lambda: wait, once)
