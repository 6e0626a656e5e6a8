"""Give back the jobs that this node has claimed without knowing it: the answer to a claim may be lost after its commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.log_lines import logger
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

log = logger("rxjobs.claims")

SELDOM_SECONDS = 120.0
"""How often to look although no answer was lost: a claim may be committed long after that. To look reads the whole table."""


def lost_claims(
    store: Store, node: UUID, held: Callable[[], set[int]], *, every_seconds: float, seldom_seconds: float = SELDOM_SECONDS
) -> Observable[int]:
    """How many jobs were given back, again and again.

    However late an answer comes, its claim is not lost: a job is given back if it was claimed before the last look, all
    claims that were on their way at that look have been answered since, and still nobody holds it.
    """
    before: datetime | None = None
    on_their_way: frozenset[object] = frozenset()
    looked_at = time.monotonic()  # of what it has claimed before it began there is nothing
    lost_at_last_look = looked_for = 0

    async def once() -> int:
        nonlocal before, on_their_way, looked_at, lost_at_last_look, looked_for
        lost, now = store.lost_answers, time.monotonic()
        is_due = looked_for < lost or now >= looked_at + seldom_seconds
        if not is_due or on_their_way & store.claims:
            return 0
        ids, instant = await patiently("looking for lost claims", lambda: store.lost_claims(node, held(), before))
        # a claim is found by the second look after its answer was lost
        looked_for, lost_at_last_look = lost_at_last_look, lost
        before, on_their_way, looked_at = instant, store.claims, now
        if ids:
            log.warning("%d jobs were claimed by this node without an answer, and are given back: %s", len(ids), sorted(ids)[:20])
        return len(ids)

    return every(lambda: every_seconds, once)
