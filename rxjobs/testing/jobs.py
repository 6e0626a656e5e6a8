"""Jobs and job types without an app or a database."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from rxjobs.call import Executor
from rxjobs.codec import PlainCodec
from rxjobs.definition import Definition, Enqueued, NewJob, Options
from rxjobs.events import EventStream
from rxjobs.executors.on_loop import on_loop
from rxjobs.job import Job
from rxjobs.perform import Middleware, performer

_ids = itertools.count(1)


def a_job(**fields: Any) -> Job:
    """A job with a fresh id and the fields given; with a `definition` it is of that type."""
    definition = fields.get("definition")
    defaults = {"id": next(_ids), "type": "a_job" if definition is None else definition.name}
    return Job(**{**defaults, **fields})


def job_type(
    function: Callable[..., Any],
    *,
    on: Executor | None = None,
    middleware: tuple[Middleware, ...] = (),
    events: EventStream | None = None,
    **options: Any,
) -> Definition[..., Any]:
    """A job type whose jobs `rj.execute` can run: `a_job(definition=job_type(function))`.

    It runs on the executor `on`, by default the event loop, inside the middleware; `options` are those of `@app.job`.
    """
    name = options.pop("name", f"{function.__module__}.{function.__qualname__}".replace(".<locals>", ""))
    definition: Definition[..., Any] = Definition(function, _NoApp(), Options(name=name, **options))
    definition.perform = performer(function, on or on_loop(), middleware, events or EventStream())
    return definition


class _NoApp:
    """What a job type asks of its app."""

    max_args_bytes = 1024 * 1024
    codec = PlainCodec()

    async def enqueue(self, new: NewJob, connection: Any = None) -> Enqueued:
        raise NotImplementedError(f"{new.type} belongs to no app: its jobs are made with a_job(), not enqueued")
