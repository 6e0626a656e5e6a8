"""Give back the jobs that this node has claimed without knowing it: the answer to a claim may be lost after its commit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

log = logging.getLogger("rxjobs.claims")


def lost_claims(store: Store, node: UUID, held: Callable[[], set[int]], *, every_seconds: float) -> Observable[int]:
    """How many jobs were given back, again and again.

    However late an answer comes, its claim is not lost: a job is given back if it was claimed before the last look, all
    claims that were on their way at that look have been answered since, and still nobody holds it.
    """
    before: datetime | None = None
    on_their_way: frozenset[object] = frozenset()

    async def once() -> int:
        nonlocal before, on_their_way
        if on_their_way & store.claims:
            return 0
        ids, now = await patiently("looking for lost claims", lambda: store.lost_claims(node, held(), before))
        before, on_their_way = now, store.claims
        if ids:
            log.warning("%d jobs were claimed by this node without an answer, and are given back: %s", len(ids), sorted(ids)[:20])
        return len(ids)

    return every(lambda: every_seconds, once)
