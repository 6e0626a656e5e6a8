"""Run jobs."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

import msgspec

from rxjobs.calls import Executor
from rxjobs.counted import Counted
from rxjobs.errors import UnknownJobType
from rxjobs.job import Job
from rxjobs.operators.stage import Item, Operator, each_awaited, fail
from rxjobs.outcome import Finished


class Jobs(Protocol):
    """What knows job types by name: an app. Raises UnknownJobType."""

    def definition(self, name: str) -> Any: ...


def execute(*, concurrency: int = 10, on: Executor | None = None, app: Jobs | None = None, name: str = "execute") -> Operator:
    """Run up to `concurrency` jobs at once, each on its job type's executor, or all on the executor `on`.

    Jobs carry their type from the source of their app; behind a source of another kind, name the app.

        ──a──────b────────
          execute()
        ────A──────────B──      A: Finished(a, Complete), B: Finished(b, Retry)
    """

    async def look_up(job: Job) -> Item:
        try:
            job = msgspec.structs.replace(job, definition=_definition(job, app))
        except UnknownJobType as error:
            return fail(job, error)
        finished: Finished = await job.definition.perform(job, on)
        return finished

    counted = Counted(name, runs_jobs=True)

    def work(job: Job) -> Coroutine[Any, Any, Item]:
        counted.went_in += 1
        return job.definition.perform(job, on) if job.definition is not None else look_up(job)

    return each_awaited("execute", work, concurrency, counted, on)


def _definition(job: Job, app: Jobs | None) -> Any:
    if app is None:
        raise UnknownJobType(f"job {job.id} ({job.type}) came from the source of no app: use rj.execute(app=app)")
    return app.definition(job.type)
