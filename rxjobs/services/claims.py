"""Give back the jobs that this node has claimed without knowing it: the answer to a claim may be lost after its commit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

log = logging.getLogger("rxjobs.claims")


def lost_claims(store: Store, node: UUID, held: Callable[[], set[int]], *, every_seconds: float) -> Observable[int]:
    """How many jobs were given back, again and again. A claim is young until `every_seconds`: its answer may be on the way."""

    async def once() -> int:
        ids = await patiently("looking for lost claims", lambda: store.lost_claims(node, held(), every_seconds))
        if ids:
            log.warning(
                "%d jobs were claimed by this node without an answer, and are given back: %s",
                len(ids),
                sorted(ids)[:20],
            )
        return len(ids)

    return every(lambda: every_seconds, once)
