"""Cut a run off when it takes too long."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from rxjobs.decide import raised
from rxjobs.job import Job
from rxjobs.outcome import Outcome
from rxjobs.perform import Middleware, Next


def timeout(seconds: float) -> Middleware:
    """Stop a run after so many seconds: a failed attempt with a TimeoutError."""

    async def middleware(job: Job, call_next: Next) -> Outcome:
        if job.hold is not None:
            job.hold.deadline = datetime.now(UTC) + timedelta(seconds=seconds)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await call_next(job)
        except TimeoutError:
            if not limit.expired():
                raise
            if job.hold is not None:
                job.hold.cancelled = True
            return raised(job, TimeoutError(f"{job.type} ran longer than its timeout of {seconds:g} s"))

    return middleware
