"""The sink that turns any stream of events into jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rxjobs.awaiting import conflate_map
from rxjobs.definition import NewJob
from rxjobs.enqueued import Enqueued
from rxjobs.errors import InvalidOption
from rxjobs.operators.stage import Operator


class Enqueuer(Protocol):
    """What inserts jobs: an app."""

    async def enqueue_many(self, news: Sequence[NewJob], connection: Any = None) -> list[Enqueued]: ...


def enqueue(app: Enqueuer) -> Operator:
    """Insert the new jobs that come down a stream, and emit their rows; what gathers during one insert goes into the next.

    A stream does not wait for the database: what it emits faster than rows are inserted gathers in memory.

        ──a─b─c──────────
          enqueue(app)
        ─────1─────2─3───      b and c were inserted together
    """
    if not callable(insert := getattr(app, "enqueue_many", None)):
        raise InvalidOption(f"rj.enqueue takes an app, which inserts jobs, not {app!r:.100}")
    return conflate_map(insert)
