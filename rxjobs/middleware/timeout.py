"""Cut a run off when it takes too long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rxjobs.call import start_of
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
        def set_deadline() -> None:
            if job.hold is not None:
                job.hold.deadline = datetime.now(UTC) + allowed

        async def run() -> Outcome:
            return await call_next(job)

        def late() -> None:
            if job.hold is not None:
                job.hold.cancelled = True

        set_deadline()
        start = start_of(job.id)
        if start is not None:
            start.on_begin(set_deadline)
        try:
            return await in_time(run(), seconds, f"job {job.id} ({job.type})", late, start)
        except TookTooLong as error:
            end = ", and does not stop" if error.runs_on else ""
            return raised(job, TimeoutError(f"{job.type} ran longer than its timeout of {seconds:g} s{end}"))

    return middleware
