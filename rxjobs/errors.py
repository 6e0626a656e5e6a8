"""Everything rxjobs raises, in one tree: what a caller can act on, saying what was wrong, what was given and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class RxJobsError(Exception):
    """The root of what rxjobs raises."""


class InvalidArguments(RxJobsError, ValueError):
    """A job's arguments do not fit its signature, or cannot be stored."""


class BadPayload(InvalidArguments):
    """A stored row's arguments cannot be read by the job type they name."""


class MissingKey(RxJobsError, LookupError):
    """A stored row's arguments are sealed with a key that this node does not have."""


class BrokenSeal(RxJobsError, ValueError):
    """A stored row's arguments do not open with the key they name: they were changed, or sealed with another."""


class NotAllowed(RxJobsError, ValueError):
    """A job names a function that this app lets no job call."""


class InvalidOption(RxJobsError, ValueError):
    """An option, a setting or a name is not usable as given."""


class UnknownJobType(RxJobsError, LookupError):
    """No job type of that name is registered with this app."""


class UnknownQueue(RxJobsError, LookupError):
    """No job type of this app names that queue."""


class UnknownCron(RxJobsError, LookupError):
    """There is no entry of cron of that name."""


class DuplicateJob(RxJobsError):
    """A unique job is there already; `job` is the one that is."""

    def __init__(self, message: str, job: Any = None) -> None:
        super().__init__(message)
        self.job = job


class JobFailed(RxJobsError):
    """A job that somebody waits for ended without a result: discarded, cancelled, deleted.

    `job` is the row, or None where it is not there any more; `type`, `message` and `traceback` are of its last error.
    """

    def __init__(self, message: str, job: Any = None, error: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        said = error or {}
        self.job = job
        self.type: str = said.get("type") or ""
        self.message: str = said.get("message") or ""
        self.traceback: str = said.get("traceback") or ""


class StaleClaim(RxJobsError):
    """A job's claim is not the current one: others may have the job, and what this run did for it is to be undone."""


class DuplicateJobType(InvalidOption):
    """Two functions were registered under one job type name."""


class NoDatabase(RxJobsError):
    """There is no PostgreSQL to talk to: none was named, or the one named does not answer."""


class InvalidDSN(NoDatabase, InvalidOption):
    """What was given as the DSN of a PostgreSQL is none."""


class NotMigrated(RxJobsError):
    """The schema is missing, or older than this code."""


class SchemaTooNew(RxJobsError):
    """The schema was migrated by a newer rxjobs than this one."""


class NotOpen(RxJobsError, RuntimeError):
    """The app was used before it was opened, or after it was closed."""


class PipelineBroken(RxJobsError, RuntimeError):
    """A pipeline broke more often than its supervisor allows."""


class WornOut(RxJobsError, RuntimeError):
    """Too much code of jobs runs on that was cancelled and does not stop: only a new process gets rid of it."""


class ChildDied(RxJobsError):
    """The process that ran a job ended before it answered."""


class PoolBroken(RxJobsError):
    """The pool behind in_pool takes no more work, or lost what it had."""
