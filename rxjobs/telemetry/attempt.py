"""What telemetry's two doors know of the attempt that runs: the middleware around it, and the listener that hears of its end."""

from __future__ import annotations

from contextvars import ContextVar

from opentelemetry.context import Context

from rxjobs.failure import Failure
from rxjobs.job import Job
from rxjobs.outcome import Cancel, Complete, Discard, Outcome, Release, Retry, Snooze
from rxjobs.telemetry import names


class TracedFailure(Failure, frozen=True):
    """A failed attempt and the span it is seen in, which the next attempt links to."""

    span_id: str | None = None


class Attempt:
    """One attempt. It knows its job by id only: contexts are copied, and must not keep a job that was let go."""

    __slots__ = ("context", "is_rejected", "job_id")

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        self.context: Context | None = None
        self.is_rejected = False


_attempt: ContextVar[Attempt | None] = ContextVar("rxjobs_attempt", default=None)


def begin(job: Job) -> Attempt:
    """The attempt that begins here. It stays until the next one in this task, so that the listener finds it after its end."""
    attempt = Attempt(job.id)
    _attempt.set(attempt)
    return attempt


def attempt_of(job: Job) -> Attempt | None:
    """The attempt of this job that runs here, or did just now."""
    attempt = _attempt.get()
    return attempt if attempt is not None and attempt.job_id == job.id else None


def outcome_name(outcome: Outcome, attempt: Attempt | None) -> str:
    """How an attempt ended, in one of telemetry's seven words."""
    if type(outcome) is Complete:  # as most do: the rest of the cases takes longer than all else there is to count
        return names.SUCCESS
    match outcome:
        case Retry():
            return names.RETRY
        case Discard():
            return names.DISCARD
        case Cancel():
            return names.CANCEL
        case Snooze():
            return names.REJECT if attempt is not None and attempt.is_rejected else names.SNOOZE
        case Release():
            return names.ABORT
        case _:
            return names.OTHER
