"""A job: a row, one unit of work, as a pipeline sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

import msgspec

from rxjobs.codec import shown
from rxjobs.errors import InvalidOption, NotOpen
from rxjobs.failure import clean

MESSAGE_MOST = 1000
"""Characters of what a job says about its progress."""


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

    def report(self, fraction: float, message: str) -> None: ...


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
    inserted_at: datetime | None = None
    scheduled_at: datetime | None = None
    attempted_at: datetime | None = None
    finished_at: datetime | None = None
    errors: Sequence[Mapping[str, Any]] = ()
    forensics: Mapping[str, Any] | None = None
    result: Any = None
    progressed: Any = None
    """What it said last about how far it has come, as its row has it."""
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
    def progress(self) -> Progress:
        """How far it says that it has come: `(0.4, "rendering")`, or empty. Called, by the running job, it says so."""
        return Progress(self)

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


class Progress(tuple[Any, ...]):
    """How far a job says that it has come, as fraction and message; empty where it has not said.

    `await job.progress(0.4, "rendering")` says it: written down at most about twice a second, the last word before the end always.
    """

    _job: Job

    def __new__(cls, job: Job) -> Progress:
        said = job.progressed
        made = super().__new__(cls, progress_of(said) or ())
        made._job = job
        return made

    @property
    def fraction(self) -> float | None:
        """From 0 to 1."""
        return self[0] if self else None

    @property
    def message(self) -> str | None:
        """Its words."""
        return self[1] if self else None

    def __call__(self, fraction: float, message: str = "") -> Awaitable[None]:
        """Say how far the running job has come, from 0 to 1, from any thread. It counts whether that is awaited or not."""
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise InvalidOption(f"job.progress takes a number from 0 to 1 and a message, not {fraction!r:.100}")
        job = self._job
        if job.hold is None:
            raise NotOpen(f"job {job.id} does not run here, so that its progress cannot be said; use rj.current_job() inside it")
        job.hold.report(float(fraction), clean(str(message), MESSAGE_MOST))
        return _Said()


class _Said:
    """What may be awaited, and need not be: others on the event loop get their turn."""

    def __await__(self) -> Generator[None]:
        yield


def progress_of(said: Any) -> tuple[float, str] | None:
    """What a row holds about how far its job has come; None for nothing, and for what another program has written there."""
    match said:
        case {"fraction": int() | float() as fraction, "message": str() as message}:
            return fraction, message
        case _:
            return None


running_job: ContextVar[Job] = ContextVar("rxjobs_running_job")


def current_job() -> Job:
    """The job that the calling code runs in; raises NotOpen outside of one."""
    try:
        return running_job.get()
    except LookupError:
        raise NotOpen("current_job() was called outside of a job; call it from the function of a job while it runs") from None
