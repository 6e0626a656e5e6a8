"""Have it known which jobs this node takes, so that the leader can tell of those that nobody does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.ledger import Ledger
from rxjobs.sources.postgres import PostgresSource
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

EVERY_SECONDS = 1.0
AGAIN_SECONDS = 60.0
"""How often it is written although nothing changed: the row may have been removed, and made anew, meanwhile."""

Serves = Mapping[str, set[str]]
"""Queues, each with the job types that are taken from it."""


def serve(
    store: Store, node: UUID, ledgers: Callable[[], Iterable[Ledger]], *, every_seconds: float = EVERY_SECONDS
) -> Observable[Serves]:
    """What this node serves, written down whenever it is something else."""
    known: Serves | None = None
    written_at = 0.0

    async def once() -> Serves:
        nonlocal known, written_at
        serves, now = _served(ledgers()), time.monotonic()
        if serves != known or now >= written_at + AGAIN_SECONDS:
            await patiently("telling which jobs this node takes", lambda: store.serve(node, serves))
            known, written_at = serves, now
        return serves

    return every(lambda: every_seconds, once)


def _served(ledgers: Iterable[Ledger]) -> dict[str, set[str]]:
    serves: dict[str, set[str]] = {}
    for ledger in ledgers:
        if isinstance(ledger.source, PostgresSource):
            serves.setdefault(ledger.source.queue, set()).update(ledger.source.types)
    return serves
