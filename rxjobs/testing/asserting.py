"""What was enqueued, asserted: `assert_enqueued` and `refute_enqueued`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from inspect import Parameter
from typing import Any, TypeVar

from rxjobs.app import App
from rxjobs.definition import Definition
from rxjobs.job import Job, State
from rxjobs.payload import ENCODER, load_untyped
from rxjobs.testing.under_test import app_for

T = TypeVar("T")

MOST = 1000
"""So many jobs are looked at, the newest first."""
SHOWN = 20
ENDED = (State.COMPLETED, State.DISCARDED, State.CANCELLED)


def assert_enqueued(
    type: Definition[Any, Any] | str,
    *,
    args: Mapping[str, Any] | None = None,
    queue: str | None = None,
    count: int | None = None,
    app: App | None = None,
) -> Job:
    """Assert that a job is enqueued and has not ended, and give it, the newest of several; with `count`, that there are so many.

    `type` is a job type or its name; of its arguments those in `args` must be there. It is a plain function in every test: one
    whose `await` is forgotten would assert nothing. What is seen is what is committed. Raises AssertionError, which lists what is
    enqueued, and what the nearest of it has otherwise.
    """
    name, jobs, fits = _look(type, args, queue, app)
    found = [job for job in jobs if not fits(job)]
    if found and (count is None or count == len(found)):
        return found[0]
    wanted = "no job is" if count is None else f"not {count} but {len(found)} jobs are"
    raise AssertionError(f"{wanted} enqueued as {_said(name, args, queue)}\n{_near(jobs, fits)}{_listed(jobs)}")


def refute_enqueued(
    type: Definition[Any, Any] | str,
    *,
    args: Mapping[str, Any] | None = None,
    queue: str | None = None,
    app: App | None = None,
) -> None:
    """Assert that no such job is enqueued, or that all have ended; takes what assert_enqueued does."""
    name, jobs, fits = _look(type, args, queue, app)
    found = [job for job in jobs if not fits(job)]
    if found:
        raise AssertionError(f"a job is enqueued as {_said(name, args, queue)}\n{_listed(found)}")


Misses = Callable[[Job], list[str]]
"""What a job has otherwise than is wanted, the weightiest first."""


def _look(
    type: Definition[Any, Any] | str, args: Mapping[str, Any] | None, queue: str | None, app: App | None
) -> tuple[str, Sequence[Job], Misses]:
    name = type.name if isinstance(type, Definition) else type
    chosen = app_for(app, type)
    wanted = _as_json(args or {})
    parameters = chosen.definitions[name].arguments.parameters if name in chosen.definitions else {}
    # what was not given is not stored, and is there when the job runs
    defaults = _as_json({key: parameters[key].default for key in wanted if key in parameters and _has_default(parameters[key])})

    def misses(job: Job) -> list[str]:
        found = [] if job.type == name else [f"its type is {job.type}"]
        if queue is not None and job.queue != queue:
            found.append(f"its queue is {job.queue}, not {queue}")
        stored = defaults | load_untyped(job.payload)
        for argument, value in wanted.items():
            if argument not in stored:
                found.append(f"it has no argument {argument}")
            elif stored[argument] != value:
                found.append(f"its {argument} is {stored[argument]!r}, not {value!r}")
        if job.state in ENDED:
            found.append(f"it is {job.state} already")
        return found

    jobs: list[Job] = _beside_a_loop(lambda: chosen.sync.jobs.list(limit=MOST))
    return name, jobs, misses


def _as_json(args: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as they are stored: typed ones too."""
    found: dict[str, Any] = load_untyped(ENCODER.encode(dict(args)).decode())
    return found


def _has_default(parameter: Parameter) -> bool:
    return parameter.default is not Parameter.empty


def _beside_a_loop(ask: Callable[[], T]) -> T:
    """What app.sync answers, also in a test that runs in an event loop: that stands still meanwhile, for some milliseconds."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(ask).result()


def _said(name: str, args: Mapping[str, Any] | None, queue: str | None) -> str:
    with_args = "" if args is None else f" with {dict(args)!r}"
    return f"{name}{with_args}{'' if queue is None else f' in queue {queue}'}"


def _near(jobs: Sequence[Job], misses: Misses) -> str:
    """The job that lacks least, and what it lacks; one of another type and with other arguments is not near."""
    wrong = [(job, misses(job)) for job in jobs]
    near = [(job, found) for job, found in wrong if found and not (found[0].startswith("its type") and len(found) > 1)]
    if not near:
        return ""
    job, found = min(near, key=lambda one: (one[1][0].startswith("its type"), len(one[1])))
    return f"the nearest is job {job.id}, but {' and '.join(found)}\n"


def _listed(jobs: Sequence[Job]) -> str:
    if not jobs:
        return "nothing is enqueued"
    lines = [f"  job {job.id}: {job.type} {job.payload:.200} in queue {job.queue}, {job.state}" for job in jobs[:SHOWN]]
    more = f"\n  and {len(jobs) - SHOWN} more" if len(jobs) > SHOWN else ""
    return "enqueued are, the newest first:\n" + "\n".join(lines) + more
