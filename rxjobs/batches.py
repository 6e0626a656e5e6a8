"""Make known what came of asking a queue for jobs, and of writing outcomes down: once for all the jobs of one statement."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from rxjobs.events import Emit, JobsAcked, QueueFetched
from rxjobs.failure import describe
from rxjobs.job import Job
from rxjobs.outcome import Finished

_outcome = attrgetter("outcome")


def tell_fetched(
    emit: Emit, source: object, requested: int, jobs: Sequence[Job], trigger: str, began: int, error: BaseException | None = None
) -> None:
    """A source was asked at `began`, by this process's own clock, ns; a source of no queue has nothing to tell."""
    queue = getattr(source, "queue", None)
    if isinstance(queue, str):
        failure, took = None if error is None else describe(error), time.monotonic_ns() - began
        emit(QueueFetched(queue=queue, requested=requested, jobs=jobs, trigger=trigger, duration=took, error=failure))


def tell_acked(emit: Emit, source: object, batch: Sequence[Finished], began: int, error: BaseException | None = None) -> None:
    """Outcomes were written down, or could not be; of none there is nothing to tell."""
    queue = getattr(source, "queue", None)
    if isinstance(queue, str) and batch:
        # without their places in this demand, which who keeps an event would keep with it
        told = [finished.job.told for finished in batch]
        outcomes = {kind.__name__: count for kind, count in Counter(map(type, map(_outcome, batch))).items()}
        failure, took = None if error is None else describe(error), time.monotonic_ns() - began
        emit(JobsAcked(queue=queue, jobs=told, duration=took, error=failure, outcomes=outcomes))
