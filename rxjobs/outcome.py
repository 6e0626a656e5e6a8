"""How an attempt ended. An outcome is a value that a job may return or raise; a failure is one of them, never an accident."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from rxjobs.errors import InvalidOption
from rxjobs.failure import Failure
from rxjobs.job import Job


class Outcome(Exception):
    """How an attempt ended."""

    __hash__ = Exception.__hash__


@dataclass(eq=True)
class Complete(Outcome):
    """The work is done; `result` is what the job returned."""

    result: Any = None
    unstorable: str | None = field(default=None, compare=False, repr=False)
    """Why what the job returned cannot be kept, where its executor found that out."""
    __hash__ = Outcome.__hash__


@dataclass(eq=True)
class Retry(Outcome):
    """Run again, after `delay` seconds or the job type's backoff; Discard where attempts are used up."""

    delay: float | None = None
    reason: str = "the job asked for a retry"
    failure: Failure | None = field(default=None, compare=False)
    exception: BaseException | None = field(default=None, compare=False, repr=False)
    __hash__ = Outcome.__hash__

    def __post_init__(self) -> None:
        if self.delay is not None:
            _check_seconds("Retry", self.delay)


@dataclass(eq=True)
class Snooze(Outcome):
    """Run again after `seconds`; it is not counted as an attempt."""

    seconds: float
    reason: str = ""
    __hash__ = Outcome.__hash__

    def __post_init__(self) -> None:
        _check_seconds("Snooze", self.seconds)


@dataclass(eq=True)
class Cancel(Outcome):
    """Never run again: the work is not wanted."""

    reason: str = "the job cancelled itself"
    __hash__ = Outcome.__hash__


@dataclass(eq=True)
class Discard(Outcome):
    """Never run again: the work cannot be done. The row becomes a dead letter."""

    reason: str = "the job discarded itself"
    failure: Failure | None = field(default=None, compare=False)
    exception: BaseException | None = field(default=None, compare=False, repr=False)
    __hash__ = Outcome.__hash__


@dataclass(eq=True)
class Release(Outcome):
    """Give the job back to its queue, after `delay` seconds; it is not counted as an attempt."""

    delay: float = 0.0
    reason: str = ""
    __hash__ = Outcome.__hash__

    def __post_init__(self) -> None:
        _check_seconds("Release", self.delay)


class SharedFailure(Exception):
    """In place of the exception of a job that failed together with others, of which another one stands for it: its cause."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.__cause__ = cause


COMPLETE = Complete()
"""What a job that returned nothing gets: one value for all of them, since no field differs."""


class Finished(msgspec.Struct, frozen=True):
    """A job and how its attempt ended: what later stages pass on untouched, and what an ack writes down."""

    job: Job
    outcome: Outcome


def _check_seconds(name: str, seconds: float) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 10**9:
        raise InvalidOption(f"{name} takes a number of seconds from 0 to a billion, not {seconds!r}")
