"""Jobs that only this process knows: given, and given again when their outcome says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from rxjobs.awaiting import scheduler_here
from rxjobs.job import Job, State
from rxjobs.outcome import Cancel, Complete, Discard, Finished, Release, Retry, Snooze


def claimed(job: Job) -> Job:
    """A job as a source gives it: an attempt of it has begun."""
    return msgspec.structs.replace(job, state=State.EXECUTING, attempt=job.attempt + 1)


def give_again(finished: Finished, made: Mapping[int, Job], ready: Callable[[Job], object]) -> bool:
    """Whether a job is to be given again: then `ready` is told of it once the delay of its outcome is over.

    `made` are the jobs as they were before any stage: what stages made of one would not be in its row either.
    """
    job = finished.job
    match finished.outcome:
        case Complete() | Cancel() | Discard():
            return False
        case Retry(delay=delay):
            state, attempt, seconds = State.RETRYABLE, job.attempt, delay or 0.0
        case Snooze(seconds=seconds):
            state, attempt = State.SCHEDULED, job.attempt - 1
        case Release(delay=seconds):
            state, attempt = State.AVAILABLE, job.attempt - 1
        case _:  # an outcome of the user's own making has no rule
            return False
    again = msgspec.structs.replace(made.get(job.id, job), hold=None, state=state, attempt=attempt)
    scheduler_here().later(seconds, lambda: ready(again))
    return True
