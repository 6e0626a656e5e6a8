"""Jobs and job types without an app or a database."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any, Protocol

from rxjobs.calls import Executor
from rxjobs.codec import PlainCodec
from rxjobs.definition import Definition, NewJob, Options
from rxjobs.enqueued import Enqueued
from rxjobs.event_stream import EventStream
from rxjobs.executors.on_loop import on_loop
from rxjobs.job import Job
from rxjobs.perform import Middleware, performer
from rxjobs.settings import Settings

HERE = on_loop()
"""Where functions run in a test on virtual time: an `asyncio.sleep` elsewhere would take real time."""

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


class App(Protocol):
    """What knows job types by name. Raises UnknownJobType."""

    def definition(self, name: str) -> Definition[..., Any]: ...


def job_of(new: NewJob, app: App) -> Job:
    """The job that a row of `new` would be, were it fetched by the app; its function runs on the event loop, wherever it ran there.

    What wraps the app's runs wraps this one too: its own middleware, the timeout, and the breaker, which is the app's.
    """
    known = app.definition(new.type)
    perform = known.perform
    assert perform is not None
    definition = copy.copy(known)
    definition.perform = lambda job, on: perform(job, HERE)
    args, payload = known.read(new.payload)
    return a_job(
        definition=definition, queue=new.queue, args=args, payload=payload, priority=new.priority,
        max_attempts=new.max_attempts, tags=new.tags, meta=new.meta,
    )  # fmt: skip


class _NoApp:
    """What a job type asks of its app."""

    max_args_bytes = 1024 * 1024
    codec = PlainCodec()
    settings = Settings()

    async def enqueue(self, new: NewJob, connection: Any = None) -> Enqueued:
        raise NotImplementedError(f"{new.type} belongs to no app: its jobs are made with a_job(), not enqueued")
