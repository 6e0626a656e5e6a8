"""A ground under load, judged in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from tests.chaos.enqueuer import Enqueuer, enqueuing
from tests.chaos.ground import Ground
from tests.chaos.ledger import now
from tests.numbers import HANG

__all__ = ["HANG", "enqueuing_both", "judge", "load", "lost_attempts", "shown"]


@asynccontextmanager
async def load(
    ground: Ground, workers: int, *, rate: float = 60.0, seconds: float = 0.05, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Enqueuer]:
    """Workers, and jobs for both queues; afterwards all is drained, and everything must have held."""
    await ground.start(workers, environ=environ)
    async with enqueuing_both(ground, rate=rate, seconds=seconds) as busy:
        yield busy
    await judge(ground)


@asynccontextmanager
async def enqueuing_both(ground: Ground, *, rate: float = 60.0, seconds: float = 0.05) -> AsyncIterator[Enqueuer]:
    """Jobs for both queues while the body runs, for workers that are there."""
    async with (
        enqueuing(ground.dsn, f"default/{now()}", rate=rate, seconds=seconds) as busy,
        enqueuing(ground.dsn, f"healthy/{now()}", queue="healthy", rate=10.0) as healthy,
    ):
        await ground.started(20)
        yield busy
    ground.answers |= busy.answers | healthy.answers


async def judge(ground: Ground) -> None:
    """Drain everything; nothing may have been lost, doubled, or left, and no worker have ended by itself."""
    await ground.drained()
    violations = await ground.verdict()
    assert not violations, violations
    for worker in ground.workers:
        assert worker.is_alive or worker.pid in ground.died, worker.log
    for worker in ground.alive:
        assert "Traceback" not in worker.log, worker.log


def shown(what: str, **figures: float) -> None:
    """Tell what was reached, for those who look (pytest -s)."""
    print(what, {name: round(figure, 3) for name, figure in figures.items()})


async def lost_attempts(ground: Ground) -> int:
    """How many attempts were written off."""
    found: int = await ground.value('SELECT count(*) FROM rxjobs.jobs WHERE errors @> \'[{"type": "rxjobs.NodeLost"}]\'')
    return found
