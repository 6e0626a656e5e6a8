"""A job: a row, one unit of work, as a pipeline sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

import msgspec

from rxjobs.codec import shown
from rxjobs.errors import NotOpen


class State(StrEnum):
    """Where a job stands: scheduled → available → executing → completed | retryable | discarded | cancelled."""

    SCHEDULED = "scheduled"
    AVAILABLE = "available"
    EXECUTING = "executing"
    COMPLETED = "completed"
    RETRYABLE = "retryable"
    DISCARDED = "discarded"
    CANCELLED = "cancelled"
    HELD = "held"


class Attempting(Protocol):
    """What is going on with a claimed job in this process."""

    cancelled: bool
    deadline: datetime | None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One unit of work.

    `attempt` is 0 before the first run and counts runs begun. `errors` holds a mapping for each failed attempt: attempt, type,
    message, traceback, node, at, duration (seconds), trace_id. Instants are aware and PostgreSQL's. `assigns` is what
    stages added on the way.
    """

    id: int
    type: str
    queue: str = "default"
    state: State = State.AVAILABLE
    args: Mapping[str, Any] = {}
    attempt: int = 0
    max_attempts: int = 20
    priority: int = 0
    scheduled_at: datetime | None = None
    attempted_at: datetime | None = None
    finished_at: datetime | None = None
    errors: Sequence[Mapping[str, Any]] = ()
    forensics: Mapping[str, Any] | None = None
    result: Any = None
    progress: Any = None
    meta: Mapping[str, Any] = {}
    tags: Sequence[str] = ()
    node: UUID | None = None
    assigns: Mapping[str, Any] = {}
    payload: str = "{}"
    """The arguments as JSON text; of a job that app.jobs gave, with `***` for secrets."""
    definition: Any = None
    """The job type this row names, as registered with the app whose source it came from."""
    hold: Any = None
    """The place this job holds in its pipeline's demand, until its ack."""

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return msgspec.Struct.__repr__(msgspec.structs.replace(self, payload=shown(self.payload)))

    def __rich_repr__(self) -> Any:
        return msgspec.Struct.__rich_repr__(msgspec.structs.replace(self, payload=shown(self.payload)))

    @property
    def cancelled(self) -> bool:
        """Whether this run was asked to stop: a long job in a thread looks here now and then."""
        return self.hold is not None and self.hold.cancelled

    @property
    def deadline(self) -> datetime | None:
        """When this run is cut off by its job type's timeout; None without one."""
        return None if self.hold is None else self.hold.deadline

    @property
    def told(self) -> Job:
        """This job as events tell of it: one that takes no place in any demand, so that to keep an event holds nothing up."""
        return self if self.hold is None else self.hold.job

    def assign(self, values: Mapping[str, Any]) -> Job:
        """This job with more assigns."""
        return msgspec.structs.replace(self, assigns={**self.assigns, **values})


running_job: ContextVar[Job] = ContextVar("rxjobs_running_job")


def current_job() -> Job:
    """The job that the calling code runs in; raises NotOpen outside of one."""
    try:
        return running_job.get()
    except LookupError:
        raise NotOpen("current_job() was called outside of a job; call it from the function of a job while it runs") from None
