"""What an attempt's end means for the job: the retry rule, as functions of the job and what happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Generator
from dataclasses import replace
from typing import Any

from rxjobs.backoff import default_backoff
from rxjobs.calls import UnstorableResult
from rxjobs.failure import describe
from rxjobs.job import Job
from rxjobs.log_lines import logger
from rxjobs.outcome import COMPLETE, Complete, Discard, Outcome, Retry

log = logger("rxjobs")

MOST_SECONDS = 10**9
"""What a Retry takes for its delay."""


def returned(job: Job, value: Any) -> Outcome:
    """The outcome of a job that returned; raises TypeError for code that has not run."""
    if value is None:
        return COMPLETE
    if type(value) not in RUN:
        refuse_unrun(value)
    if isinstance(value, UnstorableResult):
        # the work is done, and its side effects are not to be repeated for the sake of a result
        return Complete(unstorable=value.reason)
    if isinstance(value, type) and issubclass(value, Outcome):
        return raised(
            job, TypeError(f"the job returned the class {value.__name__}; it is to return one, such as rj.{value.__name__}(…)")
        )
    return resolve(job, value) if isinstance(value, Outcome) else Complete(value)


def raised(job: Job, error: BaseException) -> Outcome:
    """The outcome of a job that raised."""
    if isinstance(error, Outcome):
        # one that is raised again and again would gather the frames of all its jobs
        return resolve(job, error.with_traceback(None))
    failure = describe(error)
    return resolve(job, Retry(reason=failure.message, failure=failure, exception=error))


def resolve(job: Job, outcome: Outcome) -> Outcome:
    """The outcome with the retry rule applied: a Retry gets its delay, or is a Discard where attempts are used up."""
    if isinstance(outcome, Retry | Discard) and outcome.failure is None:
        outcome = _with_cause(outcome)
    if not isinstance(outcome, Retry):
        return outcome
    if job.attempt >= job.max_attempts:
        return Discard(outcome.reason, outcome.failure, outcome.exception)
    if outcome.delay is None:
        return Retry(wait_after(job, outcome.exception), outcome.reason, outcome.failure, outcome.exception)
    return outcome


def _with_cause(outcome: Retry | Discard) -> Retry | Discard:
    """`Discard("why", exception=error)`, or one raised from an error: what is kept of it is the error."""
    cause = outcome.exception or outcome.__cause__
    return outcome if cause is None else replace(outcome, failure=describe(cause), exception=cause)


def wait_after(job: Job, error: BaseException | None) -> float:
    """How long a job waits after its attempt has failed, seconds: as its type says, where that is known here."""
    own = job.definition.how.backoff if job.definition is not None else None
    if own is not None:
        try:
            seconds = float(own(job.attempt, error))
            if 0 <= seconds < MOST_SECONDS:
                return seconds
            log.error("the backoff of %s gave %r seconds; the default is used", job.type, seconds)
        except BaseException:  # it is a user's, and may raise anything
            log.exception("the backoff of %s raised; the default is used", job.type)
    return default_backoff(job.attempt, job.max_attempts)


RUN = frozenset({type(None), bool, int, float, str, bytes, list, tuple, dict, set, Complete})
"""Types whose values are no code: most of what is returned is of one of them, and to ask an abstract class takes its time."""


def refuse_unrun(value: Any) -> Any:
    """The value a function returned; raises TypeError for code that has not run, which must not pass for work done."""
    if type(value) in RUN:
        return value
    match value:
        case Generator() | AsyncGenerator():
            loop = "async for" if isinstance(value, AsyncGenerator) else "for"
            raise TypeError(
                f"the function returned a generator ({_name(value)}), whose code has not run: loop over it inside the "
                f"function ({loop} … in …) and return a list"
            )
        case Awaitable():
            if asyncio.iscoroutine(value):
                value.close()
            raise TypeError(f"the function returned an awaitable ({_name(value)}), which has not run: await it inside the function")
        case _:
            return value


def _name(value: Any) -> str:
    return str(getattr(value, "__qualname__", type(value).__qualname__))
