"""Cut a run off when it takes too long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

from rxjobs.calls import start_of
from rxjobs.decide import raised
from rxjobs.job import Job
from rxjobs.outcome import Outcome
from rxjobs.perform import Middleware, Next
from rxjobs.stopping import TookTooLong, in_time


def timeout(seconds: float) -> Middleware:
    """Stop a run after so many seconds: a failed attempt with a TimeoutError, which says so where the code does not stop.

    The time that it waits in its executor for a place is not counted, where the executor tells of it.
    """
    allowed = timedelta(seconds=seconds)

    async def middleware(job: Job, call_next: Next) -> Outcome:
        _set_deadline(job, allowed)
        start = start_of(job.id)
        if start is not None:
            start.on_begin(partial(_set_deadline, job, allowed))
        try:
            return await in_time(call_next(job), seconds, partial(_cut_off, job), start)
        except TookTooLong as error:
            end = ", and does not stop" if error.runs_on else ""
            return raised(job, TimeoutError(f"{job.type} ran longer than its timeout of {seconds:g} s{end}"))

    middleware.limits_time = True  # type: ignore[attr-defined]  # where an executor keeps the time itself, it is left out
    return middleware


def _set_deadline(job: Job, allowed: timedelta) -> None:
    if job.hold is not None:
        job.hold.deadline = datetime.now(UTC) + allowed


def _cut_off(job: Job) -> str:
    if job.hold is not None:
        job.hold.cancelled = True
    return f"job {job.id} ({job.type})"
