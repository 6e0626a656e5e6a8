"""How jobs and outcomes look as rows: columns in, columns out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

import asyncpg
import msgspec

from rxjobs.arguments import load_untyped
from rxjobs.codec import shown
from rxjobs.definition import Definition, NewJob, Options
from rxjobs.failure import MESSAGE_LIMIT, Failure, clean
from rxjobs.job import Job, State
from rxjobs.outcome import Cancel, Complete, Discard, Finished, Outcome, Release, Retry, Snooze

to_json = msgspec.json.Encoder(decimal_format="number").encode


EARLIEST, LATEST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


class NewRows(msgspec.Struct):
    """New jobs, by column."""

    types: list[str] = []
    queues: list[str] = []
    payloads: list[str] = []
    priorities: list[int] = []
    max_attempts: list[int] = []
    tags: list[str | None] = []
    meta: list[str | None] = []
    delays: list[float] = []
    instants: list[datetime | None] = []

    @classmethod
    def of(cls, jobs: Sequence[NewJob]) -> NewRows:
        """The columns of these jobs."""
        rows = cls()
        for job in jobs:
            rows.types.append(job.type)
            rows.queues.append(job.queue)
            rows.payloads.append(job.payload)
            rows.priorities.append(job.priority)
            rows.max_attempts.append(job.max_attempts)
            rows.tags.append(_array_literal(job.tags) if job.tags else None)
            rows.meta.append(to_json(job.meta).decode() if job.meta else None)
            rows.delays.append(job.delay)
            rows.instants.append(job.scheduled_at)
        return rows

    def columns(self) -> tuple[Any, ...]:
        """In the order of insert_jobs.sql."""
        return msgspec.structs.astuple(self)


def are_alike(jobs: Sequence[NewJob]) -> bool:
    """Whether jobs differ in nothing but their arguments."""
    is_like_first = _all_but_arguments(jobs[0]).__eq__
    return all(map(is_like_first, map(_all_but_arguments, jobs)))


_all_but_arguments = attrgetter("type", "queue", "priority", "max_attempts", "tags", "meta", "delay", "scheduled_at")


def one_columns(job: NewJob) -> tuple[Any, ...]:
    """The columns of one job, in the order of insert_one.sql."""
    tags = list(job.tags) if job.tags else None
    meta = to_json(job.meta).decode() if job.meta else None
    return job.type, job.queue, job.payload, job.priority, job.max_attempts, tags, meta


def alike_columns(jobs: Sequence[NewJob]) -> tuple[Any, ...]:
    """The columns of jobs that are alike, in the order of insert_alike.sql."""
    type_, queue, _, *alike = one_columns(jobs[0])
    return (type_, queue, [job.payload for job in jobs], *alike, jobs[0].delay, jobs[0].scheduled_at)


def unique_columns(jobs: Sequence[NewJob]) -> tuple[Any, ...]:
    """Unique keys, their periods and their states, in the order of insert_unique.sql."""
    claims = [job.unique for job in jobs]
    return (
        [claim and claim.key for claim in claims],
        [claim and claim.period for claim in claims],
        [claim and _array_literal(claim.states) for claim in claims],
    )


def type_columns(types: Iterable[Options]) -> tuple[Any, ...]:
    """What jobs of these types get unless something else is said, in the order of declare_types.sql."""
    rows = [
        (one.name, one.queue, str(one.priority), str(one.max_attempts), _array_literal(one.tags), to_json(one.meta).decode())
        for one in types
    ]
    return tuple(list(column) for column in zip(*rows, strict=True))


def replacing_columns(job: NewJob) -> tuple[Any, ...]:
    """What a new job writes over another's, in the order of replace_job.sql."""
    names = () if job.unique is None else job.unique.replace
    return (
        job.payload if "args" in names else None,
        job.priority if "priority" in names else None,
        job.max_attempts if "max_attempts" in names else None,
        _array_literal(job.tags) if job.tags else None,
        to_json(job.meta).decode() if job.meta else None,
        list(names),
        "scheduled_at" in names,
        job.scheduled_at,
        job.delay,
    )


class Written(msgspec.Struct):
    """Outcomes to write down, by column."""

    ids: list[int] = []
    attempts: list[int] = []
    attempted_at: list[datetime | None] = []
    states: list[str] = []
    delays: list[float | None] = []
    given_back: list[int] = []
    errors: list[str | None] = []
    results: list[str | None] = []
    forensics: list[str | None] = []

    @classmethod
    def of(cls, finished: Sequence[Finished], node: str) -> Written:
        """The columns of these outcomes, as reached on the node with this label."""
        rows = cls()
        for one in finished:
            state, delay, given_back, failure = _change(one.outcome)
            result = None
            if state == "completed" and one.job.definition is not None:
                result, failure = _kept(one.job.definition, one.outcome)
            rows.ids.append(one.job.id)
            rows.attempts.append(one.job.attempt)
            rows.attempted_at.append(one.job.attempted_at)
            rows.states.append(state)
            rows.delays.append(delay)
            rows.given_back.append(given_back)
            rows.errors.append(None if failure is None else error_text(one.job.attempt, failure, node))
            rows.results.append(result)
            known = one.job.forensics if state == "discarded" else None
            rows.forensics.append(None if known is None else to_json(known).decode())
        return rows

    def columns(self) -> tuple[Any, ...]:
        """In the order of ack_jobs.sql."""
        return msgspec.structs.astuple(self)


class Filters(msgspec.Struct, frozen=True):
    """Which jobs are meant; None is any."""

    states: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None

    def columns(self) -> tuple[Any, ...]:
        """In the order of list_jobs.sql, count_jobs.sql and find_jobs.sql."""
        return msgspec.structs.astuple(self)


def error_text(attempt: int, failure: Failure, node: str) -> str:
    """One entry of a job's errors, as JSON; PostgreSQL adds `at`."""
    entry: dict[str, Any] = {"attempt": attempt, **msgspec.structs.asdict(failure), "node": node}
    return to_json(entry).decode()


def job_from_row(row: asyncpg.Record, stored: str, args: Mapping[str, Any] | None = None, result: str | None = None) -> Job:
    """A job as the view `jobs` shows it; its arguments typed, or else `stored` as far as it may be seen, as its result is."""
    payload = shown(stored)
    return Job(
        id=row["id"],
        type=row["type"],
        queue=row["queue"],
        state=State(row["state"]),
        args=plain(payload) if args is None else args,
        payload=payload,
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        priority=row["priority"],
        inserted_at=row["inserted_at"],
        scheduled_at=row["scheduled_at"],
        attempted_at=row["attempted_at"],
        finished_at=row["finished_at"],
        errors=plain(row["errors"]) or (),
        forensics=plain(row["forensics"]),
        result=None if result is None else plain(shown(result)),
        progressed=plain(row["progress"]),
        meta=plain(row["meta"]) or {},
        tags=row["tags"] or (),
        node=row["node"],
    )


@lru_cache(maxsize=1024)
def instant(seconds: float) -> datetime:
    """An instant as a claim's row has it, in seconds since 1970; for one that no datetime can be the next best.

    The jobs of a batch share many of them.
    """
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError):
        return LATEST if seconds > 0 else EARLIEST


def plain(text: str | None) -> Any:
    """What a column of JSON holds; what cannot be read is given as its text, so that a broken row can still be looked at."""
    if text is None:
        return None
    try:
        return load_untyped(text)
    except ValueError:
        return text


def _change(outcome: Outcome) -> tuple[str, float | None, int, Failure | None]:
    """What an outcome does to a row: its state, the delay until it may run, the attempts given back, the error to keep."""
    match outcome:
        case Complete():
            return "completed", None, 0, None
        case Retry(delay=delay, failure=failure, reason=reason):
            return ("retryable" if delay else "available"), delay or 0.0, 0, failure or _asked("rxjobs.Retry", reason)
        case Snooze(seconds=seconds):
            return ("scheduled" if seconds else "available"), seconds, 1, None
        case Release(delay=delay):
            return ("scheduled" if delay else "available"), delay or None, 1, None
        case Cancel(reason=reason):
            return "cancelled", None, 0, _asked("rxjobs.Cancel", reason)
        case Discard(failure=failure, reason=reason):
            return "discarded", None, 0, failure or _asked("rxjobs.Discard", reason)
        case _:
            raise TypeError(f"{outcome!r} is no outcome of rxjobs")


def keeps_result(job: Job) -> bool:
    """Whether what a job returns is kept."""
    return job.definition is not None and job.definition.results is not None


def _kept(definition: Definition[..., Any], outcome: Any) -> tuple[str | None, Failure | None]:
    """What is kept of what a job returned, and why it is not: the work is done, whatever becomes of its result."""
    why = outcome.unstorable
    if definition.results is None:
        return None, None
    if why is None:
        try:
            return definition.seal_result(outcome.result), None
        except Exception as error:  # a codec may raise anything
            why = str(error)
    return None, Failure(
        "rxjobs.UnstorableResult", clean(f"the job is done, and what it returned is not kept: {why}", MESSAGE_LIMIT)
    )


def _asked(outcome: str, reason: str) -> Failure:
    return Failure(outcome, clean(str(reason), MESSAGE_LIMIT))


def _array_literal(values: Sequence[str]) -> str:
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"
