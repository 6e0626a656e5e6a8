"""Settle the jobs that a pipeline does not want, and pass the rest."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rxjobs.counted import Counted
from rxjobs.errors import InvalidOption
from rxjobs.job import Job
from rxjobs.operators.stage import Item, Operator, check_callable, each, fail, finish
from rxjobs.outcome import Cancel, Outcome


def filter(
    predicate: Callable[[Job], Any], otherwise: Outcome | None = None, *, name: str = "filter", traced: bool = False
) -> Operator:
    """Pass the jobs for which the predicate holds; the others are settled with `otherwise`, by default a Cancel.

    `traced` makes a span of each, where its trace is recorded, and not only of those that take over 5 ms.

    ──a──────b──────c──
      filter(a and c, otherwise=Cancel())
    ──a──────B──────c──      B: Finished(b, Cancel)
    """
    check_callable("filter", "predicate", predicate)
    if inspect.iscoroutinefunction(predicate):
        raise InvalidOption("rj.filter: predicate is a plain function; use rj.enrich to look something up, then filter on it")
    rest = Cancel(f"the stage {name!r} did not let it pass") if otherwise is None else otherwise
    if not isinstance(rest, Outcome):
        raise InvalidOption(f"rj.filter: otherwise is an outcome such as rj.Cancel('why'), not {rest!r}")

    def work(job: Job) -> Item:
        try:
            passes = predicate(job)
            if inspect.isawaitable(passes):
                raise TypeError(
                    "the predicate of rj.filter gave something to be awaited; use rj.enrich for that, then filter on it"
                )
            return job if passes else finish(job, rest)
        except Exception as error:
            return fail(job, error)

    return each("filter", work, Counted(name, traced=traced))
