"""`rxjobs jobs`"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from rxjobs.app import App
from rxjobs.cli.asking import ask
from rxjobs.cli.printing import count, instant, print_json, print_lines, print_table
from rxjobs.cli.target import HERE, Target
from rxjobs.errors import InvalidOption
from rxjobs.job import Job, State
from rxjobs.store.encoding import to_json

AN_ID = Number(gte=1, lte=2**63 - 1)
SHORT = 60
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
HIDDEN = {"payload", "definition", "hold", "assigns", "progressed"}

Id = Annotated[int, Parameter(name="ID", help="A job's id.", validator=AN_ID)]
Ids = Annotated[int, Parameter(name="IDS", help="The ids of jobs.", validator=AN_ID)]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which jobs are meant; each option may be given several times."""

    state: Annotated[tuple[State, ...] | None, Parameter(help="Jobs in this state.")] = None
    queue: Annotated[tuple[str, ...] | None, Parameter(help="Jobs of this queue.")] = None
    type: Annotated[tuple[str, ...] | None, Parameter(help="Jobs of this type.")] = None
    tag: Annotated[tuple[str, ...] | None, Parameter(help="Jobs with this tag, and with all of several.")] = None

    def given(self) -> dict[str, Any]:
        """By the names of app.jobs."""
        named = {"state": self.state, "queue": self.queue, "type": self.type, "tags": self.tag}
        return {name: values for name, values in named.items() if values}


ALL = Filters()


def list_jobs(
    *,
    limit: Annotated[int, Parameter(help="At most so many.", validator=Number(gte=1, lte=100_000))] = 50,
    after: Annotated[int | None, Parameter(help="Jobs older than the one with this id.", validator=AN_ID)] = None,
    filters: Filters = ALL,
    target: Target = HERE,
) -> None:
    """List jobs, the newest first.

    Example: rxjobs jobs list --state discarded --queue mail --limit 20
    """
    app = target.app()
    found = ask(app, lambda: app.jobs.list(**filters.given(), limit=limit, after=after))
    if target.json:
        print_json([_document(job) for job in found])
        return
    if not found:
        print("no job matches")
        return
    print_table(["id", "state", "type", "queue", "attempt", "scheduled", "arguments", "last error"], map(_row, found))
    if len(found) == limit:
        print(f"older ones: --after {found[-1].id}")


def show(id: Id, /, *, target: Target = HERE) -> None:
    """Show one job: its arguments, and every failed attempt with its traceback.

    Example: rxjobs jobs show 42
    """
    app = target.app()
    job = ask(app, lambda: app.jobs.get(id))
    if job is None:
        raise _unknown([id])
    if target.json:
        print_json(_document(job))
    else:
        print_lines(*_lines(job))


def cancel(*ids: Ids, filters: Filters = ALL, target: Target = HERE) -> None:
    """Cancel jobs: those that wait at once, those that run when their node has stopped them.

    Example: rxjobs jobs cancel --queue mail --state scheduled
    """
    app = target.app()
    _change("cancelled", app, app.jobs.cancel, ids, filters, target)


def retry(
    *ids: Ids,
    attempts: Annotated[int, Parameter(help="So many more, where attempts are used up.", validator=Number(gte=1, lte=1000))] = 1,
    rate: Annotated[float | None, Parameter(help="Dead letters come back at this many a second.")] = None,
    error: Annotated[tuple[str, ...] | None, Parameter(help="Dead letters whose last error is of this type.")] = None,
    since: Annotated[str | None, Parameter(help="Dead letters since then: 2026-05-01T08:00Z, or so many seconds ago.")] = None,
    filters: Filters = ALL,
    target: Target = HERE,
) -> None:
    """Make jobs available at once: those that wait, and those that were discarded or cancelled. Dead letters also at a rate.

    Example: rxjobs jobs retry --state discarded --type shop.jobs.send_welcome

    Example: rxjobs jobs retry --state discarded --error ValueError --rate 50
    """
    app = target.app()
    if rate is not None or error or since is not None:
        _redrive(app, ids, attempts, rate, error, since, filters, target)
        return
    _change("retried", app, lambda *some, **more: app.jobs.retry(*some, attempts=attempts, **more), ids, filters, target)


def delete(*ids: Ids, filters: Filters = ALL, target: Target = HERE) -> None:
    """Delete jobs that are not executing.

    Example: rxjobs jobs delete 41 42
    """
    app = target.app()
    _change("deleted", app, app.jobs.delete, ids, filters, target)


def _change(
    done: str, app: App, change: Callable[..., Awaitable[int]], ids: Sequence[int], filters: Filters, target: Target
) -> None:
    given = filters.given()
    if not ids and not given:
        raise InvalidOption("say which jobs: their ids, or --state, --queue, --type, --tag; all of them are never meant")
    if ids and given:
        raise InvalidOption("say which jobs by their ids or by --state, --queue, --type, --tag, not both")

    async def checked() -> int:
        unknown = [id for id in ids if await app.jobs.get(id) is None]
        if unknown:
            raise _unknown(unknown)
        return await change(list(dict.fromkeys(ids)) or None, **given)

    changed = ask(app, checked)
    if target.json:
        print_json({done: changed})
    else:
        left = len(set(ids)) - changed
        print(f"{count(changed, 'job')} {done}" + (f", {left} not: their state does not allow it" if left > 0 else ""))


def _redrive(
    app: App,
    ids: Sequence[int],
    attempts: int,
    rate: float | None,
    error: tuple[str, ...] | None,
    since: str | None,
    filters: Filters,
    target: Target,
) -> None:
    if not ids and set(filters.state or ()) != {State.DISCARDED}:
        raise InvalidOption("--rate, --error and --since are about dead letters: say --state discarded, and no other state")
    if ids and (error or since or filters.given()):
        raise InvalidOption("say which jobs by their ids or by --state, --queue, --type, --tag, --error and --since, not both")
    named = {"queue": filters.queue, "type": filters.type, "tags": filters.tag, "error": error, "since": _since(since)}
    given: dict[str, Any] = {name: value for name, value in named.items() if value}
    if not ids and not given:
        given["since"] = LONG_AGO
    redriven = ask(app, lambda: app.jobs.redrive(ids or None, rate=rate, attempts=attempts, **given))
    if target.json:
        print_json({"retried": redriven})
    else:
        spread = f", the last in {redriven / rate:,.0f} s" if rate and redriven > 1 else ""
        print(f"{count(redriven, 'job')} retried{spread}")


def _since(text: str | None) -> datetime | timedelta | None:
    if text is None:
        return None
    try:
        return timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        pass
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise InvalidOption(f"--since is an instant with its zone, such as 2026-05-01T08:00Z, or a number of seconds, not {text!r}")
    return instant


def _unknown(ids: Sequence[int]) -> InvalidOption:
    named = ", ".join(map(str, ids))
    return InvalidOption(
        f"no job has the id {named}; `rxjobs jobs list` shows which there are, and finished ones are kept for a while only"
    )


def _document(job: Job) -> dict[str, Any]:
    shown = {name: getattr(job, name) for name in job.__struct_fields__ if name not in HIDDEN}
    shown["progress"] = job.progressed
    # as stored: another program may have written what cannot be read here
    shown["args"] = msgspec.Raw(job.payload.encode())
    return shown


def _row(job: Job) -> tuple[Any, ...]:
    error = job.errors[-1] if job.errors else None
    return (
        job.id, job.state, job.type, job.queue, f"{job.attempt}/{job.max_attempts}", job.scheduled_at,
        _shortened(job.payload), _shortened(_headline(error)) if error else None,
    )  # fmt: skip


def _lines(job: Job) -> list[str]:
    named = {
        "queue": job.queue,
        "attempt": f"{job.attempt} of {job.max_attempts}",
        "priority": job.priority,
        "scheduled": job.scheduled_at and instant(job.scheduled_at),
        "attempted": job.attempted_at and instant(job.attempted_at),
        "finished": job.finished_at and instant(job.finished_at),
        "node": job.node,
        "tags": ", ".join(job.tags),
        "meta": _json(job.meta or None),
        "progress": _progress(job),
        "result": _json(job.result),
        "arguments": job.payload,
        "forensics": _json(job.forensics),
    }
    lines = [f"job {job.id} of {job.type}: {job.state}"]
    lines += [f"  {name:<10} {value}" for name, value in named.items() if value not in (None, "")]
    for error in job.errors:
        lines += ["", f"  attempt {error.get('attempt')} at {error.get('at')} on {error.get('node')}: {_headline(error)}"]
        lines += [f"    {line}" for line in str(error.get("traceback") or "").splitlines()]
    return lines


def _progress(job: Job) -> str:
    said = job.progress
    return f"{said.fraction:.0%} {said.message}".rstrip() if said else _json(job.progressed)


def _headline(error: Mapping[str, Any]) -> str:
    return f"{error.get('type')}: {error.get('message')}"


def _json(value: Any) -> str:
    return "" if value is None else to_json(value).decode()


def _shortened(text: str) -> str:
    return text if len(text) <= SHORT else f"{text[: SHORT - 1]}…"
