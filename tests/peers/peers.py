"""The peers: what of each the bench needs to know that measures it. `with_NAME.py` beside this is what runs with it installed."""

from __future__ import annotations

from dataclasses import dataclass

JOBS_A_CALL = 1_000
"""How many jobs one call enqueues in bulk: as many as a statement of rxjobs does."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A job runner on PostgreSQL for Python."""

    name: str
    requirement: str
    python: tuple[int, int]
    """The oldest Python that it runs on."""
    others: tuple[str, ...]
    """What else its environment has of it, whose versions matter."""
    best: int
    """The concurrency at which it is fastest, of those tried."""
    tables: str
    finished: str
    """Counts the finished jobs."""


PEERS = (
    Peer(
        name="pgqueuer",
        requirement="pgqueuer[asyncpg]==1.6.*",
        python=(3, 10),
        others=("asyncpg",),
        best=1_000,
        tables="pgqueuer, pgqueuer_log",
        finished="SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'",
    ),
    Peer(
        name="oban",
        requirement="oban==0.7.*",
        python=(3, 12),
        others=("psycopg", "psycopg-binary"),
        best=100,
        tables="oban_jobs",
        finished="SELECT count(*) FROM oban_jobs WHERE state = 'completed'",
    ),
)
