"""Look something up for each job, and let it carry what was found."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rxjobs.calls import Call, Executor
from rxjobs.checks import check_timeout
from rxjobs.counted import SAMPLE, SLOW, Counted
from rxjobs.demand import now
from rxjobs.errors import InvalidOption
from rxjobs.job import Job
from rxjobs.log_lines import logger
from rxjobs.operators.stage import Item, Operator, check_callable, each_awaited, fail, finish
from rxjobs.outcome import Finished, Outcome
from rxjobs.stopping import called, is_wish_to_stop

log = logger("rxjobs.enrich")


def enrich(
    function: Callable[[Job], Any],
    *,
    concurrency: int = 10,
    timeout: float | None = None,
    on: Executor | None = None,
    fallback: Any = None,
    name: str = "enrich",
    traced: bool = False,
) -> Operator:
    """Merge the mapping that `function(job)` gives into `job.assigns`, for up to `concurrency` jobs at once.

    A coroutine function runs on the loop, a plain one in a thread, either on the executor `on` where one is given. `timeout` is
    in seconds. What raises, or takes longer, is a failed attempt of that job; an outcome in place of a mapping settles it.

    `traced` makes a span of each, where its trace is recorded, and not only of those that take over 5 ms.
    `fallback`, a mapping, an outcome, or a function of the job and the error that gives one, is taken in place of what the function
    would have given had it not raised or taken too long: `fallback={}` goes on without.

        ──a──────b──────
          enrich({"n": 1})
        ────a'──────b'──      a'.assigns == {"n": 1}
    """

    def merge(job: Job, found: Any) -> Item:
        if found is None:
            return job
        if not isinstance(found, Mapping):
            raise TypeError(f"rj.enrich: the function of stage {name!r} gives a mapping, not {type(found).__name__}")
        return job.assign(found)

    if isinstance(fallback, type) or not isinstance(fallback, Mapping | Outcome | Callable | None):
        raise InvalidOption(
            f"rj.enrich: fallback is a mapping, an outcome, or a function of a job and an error, not {fallback!r:.100}"
        )
    return calling("enrich", function, merge, concurrency, timeout, on, fallback, Counted(name, traced=traced))


def map(
    function: Callable[[Job], Any],
    *,
    concurrency: int = 10,
    timeout: float | None = None,
    on: Executor | None = None,
    fallback: Any = None,
    name: str = "map",
    traced: bool = False,
) -> Operator:
    """Replace each job by the job that `function(job)` gives, or settle it by the outcome it gives; else as enrich.

    `fallback` is an outcome, or a function of the job and the error that gives a job or an outcome.

    ──a──────b──────
      map(f)
    ────f(a)────f(b)──
    """

    def replace(job: Job, made: Any) -> Item:
        if isinstance(made, Job) and made.hold is job.hold:
            return made
        raise TypeError(
            f"rj.map: the function of stage {name!r} gives the job, changed by job.assign(...), or an outcome, not "
            f"{type(made).__name__}; to leave the stream of jobs use reactivex's own map"
        )

    if isinstance(fallback, type) or not isinstance(fallback, Outcome | Callable | None):
        raise InvalidOption(f"rj.map: fallback is an outcome, or a function of a job and an error, not {fallback!r:.100}")
    return calling("map", function, replace, concurrency, timeout, on, fallback, Counted(name, traced=traced))


def calling(
    kind: str,
    function: Callable[[Job], Any],
    use: Callable[[Job, Any], Item],
    concurrency: int,
    timeout: float | None,
    on: Executor | None,
    fallback: Any,
    counted: Counted,
) -> Operator:
    """A stage that calls a function for each job, and makes an item of what it gives, or of what stands in for that."""
    check_callable(kind, "function", function)
    check_timeout(f"rj.{kind}", timeout)
    call = called(function if on is None else _running_on(on, function), timeout)

    async def found(job: Job) -> Any:
        try:
            return await call(job)
        except BaseException as error:
            if fallback is None or isinstance(error, Outcome) or is_wish_to_stop(error):
                raise
            log.info("%s of job %s (%s) failed, and its fallback is taken: %r", kind, job.id, job.type, error)
            instead = fallback(job, error) if callable(fallback) else fallback
            return await instead if inspect.isawaitable(instead) else instead

    async def work(job: Job) -> Item:
        counted.went_in += 1
        began = now()
        try:
            made = await found(job)
            item: Item = finish(job, made) if isinstance(made, Outcome) else use(job, made)
        except BaseException as error:  # the function is a user's, and may raise anything
            if is_wish_to_stop(error):
                raise
            item = fail(job, error)
        took = now() - began
        if type(item) is Finished or took > SLOW or counted.traced or not counted.went_in & SAMPLE:
            counted.worked(job, item, took)
        return item

    return each_awaited(kind, work, concurrency, counted, on)


def _running_on(on: Executor, function: Callable[[Job], Any]) -> Callable[[Job], Any]:
    async def run(job: Job) -> Any:
        return await on.run(Call(function, job, takes_job=True))

    return run
