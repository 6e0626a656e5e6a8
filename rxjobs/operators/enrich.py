"""Look something up for each job, and let it carry what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rxjobs.call import Call, Executor
from rxjobs.errors import InvalidOption
from rxjobs.job import Job
from rxjobs.operators.stage import Item, Operator, check_callable, each_awaited, fail, finish
from rxjobs.outcome import Outcome
from rxjobs.stopping import called, is_wish_to_stop


def enrich(
    function: Callable[[Job], Any],
    *,
    concurrency: int = 10,
    timeout: float | None = None,
    on: Executor | None = None,
    name: str = "enrich",
) -> Operator:
    """Merge the mapping that `function(job)` gives into `job.assigns`, for up to `concurrency` jobs at once.

    A coroutine function runs on the loop, a plain one in a thread, either on the executor `on` where one is given. `timeout` is
    in seconds. What raises, or takes longer, is a failed attempt of that job; an outcome in place of a mapping settles it.

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

    return _calling("enrich", function, merge, concurrency, timeout, on)


def map(
    function: Callable[[Job], Any],
    *,
    concurrency: int = 10,
    timeout: float | None = None,
    on: Executor | None = None,
    name: str = "map",
) -> Operator:
    """Replace each job by the job that `function(job)` gives, or settle it by the outcome it gives; else as enrich.

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

    return _calling("map", function, replace, concurrency, timeout, on)


def _calling(
    kind: str,
    function: Callable[[Job], Any],
    use: Callable[[Job, Any], Item],
    concurrency: int,
    timeout: float | None,
    on: Executor | None,
) -> Operator:
    check_callable(kind, "function", function)
    if timeout is not None and timeout <= 0:
        raise InvalidOption(f"rj.{kind}: timeout is a number of seconds above 0, or None, not {timeout!r}")
    call = called(function if on is None else _running_on(on, function), timeout)

    async def work(job: Job) -> Item:
        try:
            found = await call(job)
            return finish(job, found) if isinstance(found, Outcome) else use(job, found)
        except BaseException as error:  # the function is a user's, and may raise anything
            if is_wish_to_stop(error):
                raise
            return fail(job, error)

    return each_awaited(kind, work, concurrency, on)


def _running_on(on: Executor, function: Callable[[Job], Any]) -> Callable[[Job], Any]:
    async def run(job: Job) -> Any:
        return await on.run(Call(function, job, takes_job=True))

    return run
