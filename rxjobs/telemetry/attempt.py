"""What telemetry's two doors know of the attempt that runs: the middleware around it, and the listener that hears of its end."""

from __future__ import annotations

from contextvars import ContextVar

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext

from rxjobs.failure import Failure
from rxjobs.job import Job
from rxjobs.outcome import Cancel, Complete, Discard, Outcome, Release, Retry, Snooze
from rxjobs.telemetry import names

MOST = 10_000
"""So many ended attempts are remembered until they are written."""


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


class Ended:
    """The spans of attempts that have ended and whose outcomes are not known to be written: what the span of an ack links to."""

    def __init__(self, most: int = MOST) -> None:
        self._spans: dict[tuple[int, int], SpanContext] = {}
        self._most = most

    def add(self, job: Job, span: SpanContext) -> None:
        """An attempt has ended; the oldest is forgotten where there are too many, since some are never written."""
        if len(self._spans) >= self._most:
            del self._spans[next(iter(self._spans))]
        self._spans[job.id, job.attempt] = span

    def find(self, job: Job, *, is_last: bool) -> SpanContext | None:
        """The span of this attempt; `is_last` forgets it."""
        key = job.id, job.attempt
        return self._spans.pop(key, None) if is_last else self._spans.get(key)


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


WORDS = {
    "Complete": names.SUCCESS, "Retry": names.RETRY, "Discard": names.DISCARD, "Cancel": names.CANCEL, "Snooze": names.SNOOZE,
    "Release": names.ABORT,
}  # fmt: skip
"""Telemetry's words for outcomes, by the names of these."""


def outcome_name(outcome: Outcome, attempt: Attempt | None) -> str:
    """How an attempt ended, in one of telemetry's seven words."""
    match outcome:
        case Complete():
            return names.SUCCESS
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
