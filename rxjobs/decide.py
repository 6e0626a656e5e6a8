"""What an attempt's end means for the job: the retry rule, as functions of the job and what happened."""

from __future__ import annotations

import logging
import math
from typing import Any

from rxjobs.backoff import default_backoff
from rxjobs.failure import describe
from rxjobs.job import Job
from rxjobs.outcome import COMPLETE, Complete, Discard, Outcome, Retry

log = logging.getLogger("rxjobs")


def returned(job: Job, value: Any) -> Outcome:
    """The outcome of a job that returned."""
    if value is None:
        return COMPLETE
    return resolve(job, value) if isinstance(value, Outcome) else Complete(value)


def raised(job: Job, error: BaseException) -> Outcome:
    """The outcome of a job that raised."""
    if isinstance(error, Outcome):
        return resolve(job, error)
    failure = describe(error)
    return resolve(job, Retry(reason=failure.message, failure=failure, exception=error))


def resolve(job: Job, outcome: Outcome) -> Outcome:
    """The outcome with the retry rule applied: a Retry gets its delay, or is a Discard where attempts are used up."""
    if not isinstance(outcome, Retry):
        return outcome
    if job.attempt >= job.max_attempts:
        return Discard(outcome.reason, outcome.failure, outcome.exception)
    if outcome.delay is None:
        return Retry(_backoff(job, outcome.exception), outcome.reason, outcome.failure, outcome.exception)
    return outcome


def _backoff(job: Job, error: BaseException | None) -> float:
    own = job.definition.how.backoff if job.definition is not None else None
    if own is not None:
        try:
            seconds = float(own(job.attempt, error))
            if math.isfinite(seconds) and seconds >= 0:
                return seconds
            log.error("the backoff of %s gave %r seconds; the default is used", job.type, seconds)
        except Exception:
            log.exception("the backoff of %s raised; the default is used", job.type)
    return default_backoff(job.attempt, job.max_attempts)
